# What fetch, link and version know about this machine. Sourced, not run; $here is this folder.

# sysroot stands before paths of the machine that tests replace.
sysroot=${LLAMATAP_TEST_SYSROOT:-}

os_id() { (. "$sysroot/etc/os-release" 2>/dev/null && printf '%s\n' "${ID:-unknown}") || echo unknown; }

# know_machine: sets $arch (Debian's name), $triplet, $loader_name, $host_loader, $cache.
know_machine() {
	case "$(uname -s)-$(uname -m)" in
	Linux-x86_64) arch=amd64 triplet=x86_64-linux-gnu loader_name=ld-linux-x86-64.so.2 host_loader=/lib64/ld-linux-x86-64.so.2 ;;
	Linux-aarch64) arch=arm64 triplet=aarch64-linux-gnu loader_name=ld-linux-aarch64.so.1 host_loader=/lib/ld-linux-aarch64.so.1 ;;
	*) return 1 ;;
	esac
	if [ -n "${XDG_CACHE_HOME:-}" ]; then
		cache=$XDG_CACHE_HOME/llamatap
	elif [ -n "${HOME:-}" ]; then
		cache=$HOME/.cache/llamatap
	else
		cache=$here/../../build/cache
	fi
}

# glibc_locked: version (2.43) of the C library that the locked packages come with.
glibc_locked() { awk -v a="$arch" '$1 == a && $2 == "libc6" { sub(/[-+].*/, "", $3); print $3 }' "$here/llama.lock"; }

# host_libc: is the machine's own C library new enough for the packages? Then it is used.
host_libc() {
	host=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ print $2 }')
	[ -n "$host" ] && [ -e "$host_loader" ] || return 1
	[ "$(printf '%s\n%s\n' "$host" "$(glibc_locked)" | sort -V | head -n 1)" = "$(glibc_locked)" ]
}

# loader_of DIST: the dynamic loader that programs linked with DIST start with.
loader_of() {
	if host_libc; then readlink -f "$host_loader"; else printf '%s\n' "$1/glibc/usr/lib/$triplet/$loader_name"; fi
}

# library_path DIST: where that loader finds the libraries.
library_path() {
	host_libc || printf '%s:' "$1/glibc/usr/lib/$triplet"
	own_libraries "$1"
}

# own_libraries DIST: where the libraries of the packages are, but for the C library.
own_libraries() { printf '%s\n' "$1/usr/lib/$triplet:$1/usr/lib/$triplet/llama:$1/backends-blas:$1/backends-vulkan"; }

# packed_library_path DIST: the same where the C library of the packages is used whatever the machine's is.
packed_library_path() { printf '%s\n' "$1/glibc/usr/lib/$triplet:$(own_libraries "$1")"; }

# runnable DIST: makes DIST/run, through which the stock tools start: a copy of the loader beside
# links to the CPU backends, because llama.cpp looks for backends where /proc/self/exe is.
runnable() {
	mkdir -p "$1/run"
	cp "$(loader_of "$1")" "$1/run/ld.so"
	for so in "$1/usr/lib/$triplet"/ggml/backends*/*.so; do
		ln -sf "../${so#"$1"/}" "$1/run/"
	done
	cat >"$1/run/start" <<-'SCRIPT'
		#!/bin/sh
		# Starts the stock llama.cpp program that this link is named after, with the loader, libraries
		# and CPU backends of this folder. A first argument --preload=FILE preloads FILE.
		# For another backend set GGML_BACKEND_PATH to the full path of ../backends-rpc/libggml-rpc.so,
		# ../backends-blas/libggml-blas.so or ../backends-vulkan/libggml-vulkan.so.
		dist=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
		preload=
		case "${1:-}" in --preload=*) preload=${1#--preload=} && shift ;; esac
		exec "$dist/run/ld.so" --preload "$preload" --library-path "@PATH@" --argv0 "$0" "$dist/usr/bin/$(basename -- "$0")" "$@"
	SCRIPT
	sed -i "s|@PATH@|$(library_path '$dist')|" "$1/run/start"
	chmod 755 "$1/run/start"
	for tool in "$1"/usr/bin/*; do ln -sf start "$1/run/$(basename "$tool")"; done
}
