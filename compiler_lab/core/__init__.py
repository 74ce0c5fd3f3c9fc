"""What every stage stands on: artifacts, options, errors, provenance and FX helpers. Imports nothing of the package."""
