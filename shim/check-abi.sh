#!/bin/sh
# Fails when the library needs anything from the system it is loaded on, or shows a symbol of its own to programs.
set -eu
library=$1
faults=0

fault() {
	echo "check-abi: $library: $1" >&2
	faults=1
}

undefined=$("${NM:-nm}" -D --undefined-only "$library")
[ -z "$undefined" ] || fault "undefined symbols: $undefined"

exported=$("${NM:-nm}" -D --defined-only "$library" | awk '{ print $NF }' | sort | tr '\n' ' ')
[ "$exported" = "la_objclose la_objopen la_preinit la_symbind64 la_version " ] || fault "exports: $exported"

dynamic=$("${READELF:-readelf}" --dynamic --wide "$library")
! echo "$dynamic" | grep -q '(NEEDED)' || fault "needs other libraries"
! echo "$dynamic" | grep -q 'TEXTREL' || fault "has text relocations"

segments=$("${READELF:-readelf}" --program-headers --wide "$library")
! echo "$segments" | grep -q '^ *TLS ' || fault "has a TLS segment"
echo "$segments" | grep -q '^ *GNU_STACK .* RW ' || fault "wants an executable stack"

exit "$faults"
