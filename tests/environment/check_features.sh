# Fails if the tests of one crate would compile anything with other features than the tests of all, which have to be
# compiled already. tests/features/Cargo.toml says what to do then.
set -euo pipefail
for crate in base pixels data store stream engine simulate cli; do
	said=$(cargo test --locked --no-run -p "foreload-$crate" 2>&1) || { echo "$said" >&2; exit 1; }
	if compiled=$(grep Compiling <<<"$said"); then
		echo "cargo test -p foreload-$crate compiles these again; compare features by cargo tree -e features -i NAME:" >&2
		echo "$compiled" >&2
		exit 1
	fi
done
