dependencies {
    implementation("io.micronaut.kafka:micronaut-kafka:5.4.0")
}
