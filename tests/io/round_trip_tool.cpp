#include <cstdio>
#include <exception>

#include "lockstep/io/safetensors.hpp"

// Reads a safetensors file and writes what it read: `round_trip_tool FROM TO`.
int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: round_trip_tool FROM TO\n", stderr);
    return 2;
  }
  try {
    const auto file = lockstep::io::SafetensorsFile::open(argv[1]);
    lockstep::io::save_safetensors(argv[2], file.tensors(), file.metadata());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
