"""Adapters of ClusterWatch and ClusterWrites over the kubernetes client."""
