"""The part of the Kubernetes API that batches use, in this process; the commands of pods run on this machine."""
