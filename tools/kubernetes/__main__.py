"""Build etcd and kube-apiserver if they are not in the cache: `python -m tools.kubernetes`."""

import sys

from tools.kubernetes.binaries import binaries

if __name__ == "__main__":
    try:
        print(binaries())
    except RuntimeError as error:
        sys.exit(str(error))
