#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "io/in_quotes.hpp"
#include "lockstep/io/safetensors_header.hpp"

/// @file
/// Receives the JSON events of a safetensors header and builds the table of contents.

namespace lockstep::io {

/// Events instead of a document: duplicate keys stay visible, nesting is refused before anything
/// is built for it, and memory stays within a small multiple of the header.
class SafetensorsSax {
 public:
  SafetensorsSax(SafetensorsHeader& header, std::string_view source)
      : header_(header), source_(source) {}

  bool null() { return refuse("null"); }
  bool boolean(bool) { return refuse("a truth value"); }
  bool number_integer(std::int64_t value) { return refuse("the negative number ", value); }
  bool number_float(double, const std::string& text) { return refuse("the number ", text); }
  bool binary(nlohmann::json::binary_t&) { return refuse("binary data"); }
  bool number_unsigned(std::uint64_t value);
  bool string(std::string& value);
  bool start_object(std::size_t);
  bool key(std::string& name);
  bool end_object();
  bool start_array(std::size_t);
  bool end_array();
  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception& error) {
    LOCKSTEP_THROW(CorruptData, source_, ": broken JSON at offset ", position + 7, ": ",
                   error.what());
  }

 private:
  enum class Level { outside, top, metadata, entry, shape, offsets };
  enum class Field { none, dtype, shape, offsets, unknown };

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    LOCKSTEP_THROW(CorruptData, source_, ": ", parts...);
  }
  // Says where in the header the parser stands.
  std::string place() const;
  template <class... Parts>
  [[noreturn]] bool refuse(const Parts&... parts) const {
    fail(place(), " does not allow ", parts..., expected());
  }
  std::string_view expected() const;
  SafetensorsEntry& entry() { return header_.entries.back(); }
  bool top_key(const std::string& name);
  bool entry_key(const std::string& name);

  SafetensorsHeader& header_;
  std::string_view source_;
  Level level_ = Level::outside;
  Field field_ = Field::none;
  bool metadata_next_ = false, has_metadata_ = false;
  unsigned fields_seen_ = 0;
  int offsets_seen_ = 0;
  std::string metadata_key_;
  std::set<std::string, std::less<>> names_;
};

}  // namespace lockstep::io
