# The tasks of this repository. CONTRIBUTING.md says when to run them.

.PHONY: test ci bench release golden openapi

test: # the tests that need only common programs
	cargo test

ci: # all checks, on Debian as root
	.ci/run

bench: # the speed; lab/README.md has the options
	cargo build --release
	lab/speed.py target/release/tenantdesk

release: # the files of a release in target/dist, as root
	release/build

golden: # the messages of errors, the guide's responses, the OpenAPI document; their diff is the change that clients see
	UPDATE_GOLDEN=1 cargo test --test contract messages
	UPDATE_GOLDEN=1 cargo test --test operator guide
	UPDATE_GOLDEN=1 cargo test --test openapi

openapi: # docs/openapi.json, from the declarations and docs/guide.md
	UPDATE_GOLDEN=1 cargo test --test openapi
