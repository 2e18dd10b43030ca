"""How the tests get real servers: fetched by version, started on loopback, ended with the run."""
