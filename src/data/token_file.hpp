#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "lockstep/core/error.hpp"
#include "lockstep/io/mapped_file.hpp"

namespace lockstep::data {

/// Maps a file of unsigned tokens of 2 or 4 bytes each, whose largest is `largest`, or not known
/// (0).
/// @throws FileError; CorruptData; InvalidArgument.
inline std::shared_ptr<const io::MappedFile> map_tokens(const std::filesystem::path& path,
                                                        int token_bytes, std::int64_t largest) {
  LOCKSTEP_CHECK(token_bytes == 2 || token_bytes == 4, InvalidArgument, "token_bytes is ",
                 token_bytes, "; the tokens of a file have 2 or 4");
  const std::int64_t most = (std::int64_t{1} << 8 * token_bytes) - 1;
  LOCKSTEP_CHECK(largest <= most, InvalidArgument, path.string(), ": token ", largest,
                 " has no room in ", 8 * token_bytes, " bits; ",
                 token_bytes == 2 ? "a file of 32-bit tokens has token_bytes = 4"
                                  : "there are no wider tokens");
  auto file = std::make_shared<const io::MappedFile>(path);
  LOCKSTEP_CHECK(file->bytes().size() % static_cast<std::size_t>(token_bytes) == 0, CorruptData,
                 path.string(), ": ", file->bytes().size(), " bytes are no whole number of ",
                 8 * token_bytes, "-bit tokens");
  return file;
}

/// Calls `body` with a token of that many bytes.
template <class Body>
decltype(auto) with_token_of(int bytes, Body&& body) {
  if (bytes == 1) return body(std::uint8_t{});
  if (bytes == 2) return body(std::uint16_t{});
  return body(std::uint32_t{});
}

}  // namespace lockstep::data
