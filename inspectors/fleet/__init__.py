"""The fleet pipeline: a whole cluster's history from `__consumer_offsets` and request logs.

`scan` (Spark) reduces records to the tables of `schemas.TABLES`; `tables` (pyarrow, no JVM) reads
them back, as a report's input or as evidence for one group. Nothing outside this package imports
pyspark, and nothing here decides: the planner does, on the driver, from what the tables say.
"""
