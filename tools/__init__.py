"""How the tests get Kafka, PostgreSQL and a kube-apiserver."""
