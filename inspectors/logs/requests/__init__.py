"""The broker's request log (`kafka-request.log`), read as observations."""
