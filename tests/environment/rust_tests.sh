# Runs all tests of Rust, also after one has failed, and prints the twenty that took longest.
#
# libtest tells the time of a test only where unstable options are allowed. The compiler must not see that variable, or
# it would compile again what asks for it; so the programs of tests alone get it.
set -euo pipefail
# Many tests wait for threads, files and servers.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
cargo test --locked --no-fail-fast --lib --bins --tests \
	--config 'target."cfg(all())".runner = ["env", "RUSTC_BOOTSTRAP=1"]' -- -Z unstable-options --report-time "$@" |
	tee "$log" || failed=1
echo "The tests of Rust that took longest, in seconds:"
sed -n 's/^test \([^ ]*\) .* <\([0-9.]*\)s>$/\2 \1/p' "$log" | sort -rn | sed -n '1,20p'
cargo test --locked --doc || failed=1
exit $failed
