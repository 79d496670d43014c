#!/usr/bin/env bash
# Builds the release binary. The same commit gives the same bytes in any folder, with any target folder and for any
# user: no path of this machine and no time gets into it. It keeps its symbol table, by which a CPU profile names
# functions, and has no debug information.
#
#   deploy/dist/build.sh [ARGUMENT OF cargo build]...
#
# Prints the path of the binary on standard output. Variables: CARGO, CARGO_TARGET_DIR as everywhere.
set -euo pipefail

case ${1:-} in
-h | --help)
    sed -n '2,/^set -e/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
cd "$repository"
cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cargo_home=$(realpath -m "${CARGO_HOME:-$HOME/.cargo}")
sysroot=$(rustc --print sysroot)
commit=$(rustc -vV | sed -n 's/^commit-hash: //p')

# Later ones win, so the folder inside comes after the one around it.
places=(
    "$repository=/source"
    "$target=/target"
    "$cargo_home=/cargo"
    "$sysroot/lib/rustlib/src/rust=/rustc/$commit"
)
# cargo splits this variable at the character 0x1f, so folders may have spaces in their names.
flags=()
for place in "${places[@]}"; do
    flags+=("--remap-path-prefix=$place")
done
CARGO_ENCODED_RUSTFLAGS=$(
    IFS=$'\x1f'
    printf '%s' "${flags[*]}"
)
export CARGO_ENCODED_RUSTFLAGS
unset RUSTFLAGS

# Dependencies in C and assembler.
CFLAGS="-ffile-prefix-map=$target=/target -ffile-prefix-map=$cargo_home=/cargo"
export CFLAGS

# The time of the commit, for what wants to know a time.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

# --config: neither a person's own settings nor incremental leftovers decide what is in the binary.
"$cargo" build --locked --release --package cloud-controller-manager --bin cloud-controller-manager \
    --config 'profile.release.incremental=false' --message-format=json-render-diagnostics "$@" |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
