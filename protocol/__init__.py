"""The contract: what the services and HAMi's parts say to each other through the API server.

Pure code: no I/O, no clock, no logging. Everything here is a function of its arguments.
"""
