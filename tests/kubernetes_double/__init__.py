"""The part of Kubernetes' API that batches use, in this process; what a pod is to run, runs here."""
