"""The documentation as a site: `make docs` builds it from docs/, README.md and CHANGELOG.md into build/site."""
