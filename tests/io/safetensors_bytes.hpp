#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/io/safetensors_header.hpp"

/// @file
/// Safetensors files as strings, right and wrong ones.

namespace lockstep::io {

/// The 8 bytes of length in front of a header.
inline std::string length_bytes(std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes;
}

/// A file with the given header and `data_bytes` bytes of data.
inline std::string file_bytes(std::string_view header, std::size_t data_bytes = 0) {
  return length_bytes(header.size()) + std::string(header) + std::string(data_bytes, '\0');
}

/// Parses a file that lies in memory.
inline SafetensorsHeader parse(std::string_view file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), "test.safetensors");
}

/// What parsing throws as CorruptData; "" if it throws nothing.
inline std::string corruption(std::string_view file) {
  try {
    parse(file);
    return "";
  } catch (const CorruptData& error) {
    return error.what();
  }
}

}  // namespace lockstep::io
