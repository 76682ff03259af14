//! Lines: cutting a stream of bytes into frames.
