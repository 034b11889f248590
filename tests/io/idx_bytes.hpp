#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

/// @file
/// IDX files as strings.

namespace lockstep::io {

/// An IDX file with the given element type, extents and data.
inline std::string idx_bytes(int code, const std::vector<std::int64_t>& shape,
                             std::string_view data) {
  std::string file{'\0', '\0', static_cast<char>(code), static_cast<char>(shape.size())};
  for (const auto extent : shape)
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>(extent >> shift & 0xFF);
  return file + std::string(data);
}

/// The text compressed as gzip does.
inline std::string gzip(std::string_view text) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, 16 + 9, 1, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace lockstep::io
