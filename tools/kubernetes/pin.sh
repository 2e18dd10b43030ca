#!/usr/bin/env bash
# Pin another Kubernetes version: `bash tools/kubernetes/pin.sh 1.36.3` writes go.mod and go.sum anew.
# Kubernetes requires its own libraries at v0.0.0 and replaces them by folders of its repository; what
# depends on it must name the published module of each.
set -euo pipefail
cd "$(dirname "$0")"
version=$1
libraries=v0.${version#1.}
rm -f go.mod go.sum
go mod init kai-es.test/kubernetes
go mod edit -go=1.26.0 -require "k8s.io/kubernetes@v$version" -tool k8s.io/kubernetes/cmd/kube-apiserver
gomod=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
while read -r module; do
  go mod edit -replace "$module=$module@$libraries"
done < <(sed -n 's#^\t\(k8s\.io/[a-z-]*\) => \./staging/.*#\1#p' "$gomod")
go mod tidy
