# The tasks of this repository. CONTRIBUTING.md says when to run them.

.PHONY: test proof ci bench release golden openapi

test: # the tests that need only Rust and a C compiler
	cargo test

proof: # all other tests, and what cargo test samples at full length; on Debian, as root in a container or a virtual machine
	tests/proof

ci: # the checks of every change, on Debian as root
	.ci/run

bench: # the speed; lab/speed.py --help has the options
	cargo build --release
	lab/speed.py target/release/tenantdesk

release: # the files of a release in target/dist, as root
	release/build

golden: # the messages of errors, the guide's responses (with curl, Python and Node.js), the OpenAPI document; their diff is the
        # change that clients see
	UPDATE_GOLDEN=1 cargo test --test contract messages
	UPDATE_GOLDEN=1 cargo test --test examples guide
	UPDATE_GOLDEN=1 cargo test --test openapi

openapi: # docs/openapi.json, from the declarations and docs/guide.md
	UPDATE_GOLDEN=1 cargo test --test openapi
