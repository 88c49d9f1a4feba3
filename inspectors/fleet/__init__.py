"""The fleet pipeline: a whole cluster's history from `__consumer_offsets` and request logs.

`scan` runs on Spark and reduces the records to the tables of `schemas.TABLES`. `inspectors.tables`
reads these tables with pyarrow, without a JVM, as the input of a report or as evidence for one
group. Nothing outside this package imports pyspark. The package only collects facts: the planner
draws the conclusions from the tables, on the driver.
"""
