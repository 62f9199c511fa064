"""The common code of all benchmarks: rounds, programs, aims, results, options, and environments of other libraries."""
