//! thalweg

fn main() {}
