"""What Spark's JVM is started with."""

import shlex

import pytest

from rebal.inspectors.fleet.session import SparkSettings, _configuration

OPTIONS = "spark.driver.extraJavaOptions"


@pytest.mark.parametrize("chosen", ["-Xss4m", "-XX:TieredStopAtLevel=4 -Dsun.net.spi=x"])
def test_a_users_own_jvm_options_stay_and_win(chosen: str) -> None:
    plain = _configuration(SparkSettings(), kafka=False)
    users = _configuration(SparkSettings(conf=((OPTIONS, chosen),)), kafka=False)
    # Of two values of a flag the JVM takes the later one.
    assert users[OPTIONS] == f"{plain[OPTIONS]} {chosen}"
    assert {**users, OPTIONS: ""} == {**plain, OPTIONS: ""}


@pytest.mark.parametrize("chosen", ["", "-Xss4m"])
def test_executors_may_get_tokens_from_one_address(chosen: str) -> None:
    options = "spark.executor.extraJavaOptions"
    settings = SparkSettings(conf=((options, chosen),), tokens='http://i/token?a="b"')
    made = _configuration(settings, kafka=False)[options]
    name = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
    assert shlex.split(made) == [*chosen.split(), f'-D{name}=http://i/token?a="b"']
