"""What all benchmarks share: rounds, programs, aims, results, options, and the environments of other libraries."""
