//! Manual pages, completions and help texts: generated, committed, and compared byte for byte.
