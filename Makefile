# The tasks of this repository. CONTRIBUTING.md says when to run them.

.PHONY: test ci bench release golden

test: # the tests that need only common programs
	cargo test

ci: # all checks, on Debian as root
	.ci/run

bench: # the speed; lab/README.md has the options
	cargo bench --bench http

release: # the files of a release in target/dist, as root
	release/build

golden: # the files in tests/golden; their diff is the change that clients see
	UPDATE_GOLDEN=1 cargo test --lib messages
	UPDATE_GOLDEN=1 cargo test --test openapi
	UPDATE_GOLDEN=1 cargo test --test operator reference
