"""The broker's own log (`server.log`): the lines of its group coordinator."""
