"""The iteration order of Java's hash tables, which the assignors' results depend on."""
