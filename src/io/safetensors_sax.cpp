#include "io/safetensors_sax.hpp"

namespace lockstep::io {

std::string SafetensorsSax::place() const {
  using lockstep::detail::concat;
  switch (level_) {
    case Level::outside: return "the header";
    case Level::metadata: return concat("'__metadata__', key ", in_quotes(metadata_key_));
    case Level::top:
      if (metadata_next_) return "'__metadata__'";
      if (header_.entries.empty()) return "the header";
      break;
    default: break;
  }
  return concat("tensor ", in_quotes(header_.entries.back().name));
}

std::string_view SafetensorsSax::expected() const {
  switch (level_) {
    case Level::outside:
    case Level::top: return "; an object belongs there";
    case Level::metadata: return "; a string belongs there";
    case Level::shape: return " in 'shape'; extents are whole numbers from 0";
    case Level::offsets: return " in 'data_offsets'; two whole numbers from 0 belong there";
    case Level::entry:
      return field_ == Field::dtype ? " as 'dtype'; a string belongs there"
                                    : "; 'shape' and 'data_offsets' are lists of numbers";
  }
  return "";
}

bool SafetensorsSax::number_unsigned(std::uint64_t value) {
  if (level_ == Level::shape) {
    if (value > static_cast<std::uint64_t>(INT64_MAX)) refuse("the extent ", value);
    LOCKSTEP_CHECK(entry().shape.size() < max_rank, Unsupported, source_, ": ", place(),
                   " has more than ", max_rank, " dimensions");
    entry().shape.push_back(static_cast<std::int64_t>(value));
  } else if (level_ == Level::offsets) {
    if (offsets_seen_ == 2) refuse("a third number");
    (offsets_seen_++ == 0 ? entry().begin : entry().end) = value;
  } else {
    refuse("the number ", value);
  }
  return true;
}

bool SafetensorsSax::string(std::string& value) {
  if (level_ == Level::metadata) {
    header_.metadata[metadata_key_] = std::move(value);
  } else if (level_ == Level::entry && field_ == Field::dtype) {
    entry().format = std::move(value);
  } else {
    refuse("the string ", in_quotes(value));
  }
  return true;
}

bool SafetensorsSax::start_object(std::size_t) {
  if (level_ == Level::outside) {
    level_ = Level::top;
  } else if (level_ == Level::top) {
    level_ = metadata_next_ ? Level::metadata : Level::entry;
    field_ = Field::none;
    fields_seen_ = 0;
  } else {
    refuse("an object");
  }
  return true;
}

bool SafetensorsSax::key(std::string& name) {
  if (level_ == Level::top) return top_key(name);
  if (level_ == Level::entry) return entry_key(name);
  metadata_key_ = std::move(name);
  if (header_.metadata.contains(metadata_key_)) fail(place(), " appears twice");
  return true;
}

bool SafetensorsSax::top_key(const std::string& name) {
  metadata_next_ = name == "__metadata__";
  if (metadata_next_) {
    if (std::exchange(has_metadata_, true)) fail("'__metadata__' appears twice");
    return true;
  }
  if (!names_.insert(name).second) fail("tensor ", in_quotes(name), " appears twice");
  if (names_.size() > max_safetensors_entries)
    fail("more than ", max_safetensors_entries, " tensors");
  header_.entries.emplace_back().name = name;
  return true;
}

bool SafetensorsSax::entry_key(const std::string& name) {
  field_ = name == "dtype"          ? Field::dtype
           : name == "shape"        ? Field::shape
           : name == "data_offsets" ? Field::offsets
                                    : Field::unknown;
  if (field_ == Field::unknown)
    fail(place(), " has the unknown key ", in_quotes(name),
         "; 'dtype', 'shape' and 'data_offsets' belong there");
  const unsigned bit = 1u << static_cast<unsigned>(field_);
  if (fields_seen_ & bit) fail(place(), " has the key ", in_quotes(name), " twice");
  fields_seen_ |= bit;
  return true;
}

bool SafetensorsSax::end_object() {
  if (level_ == Level::top) {
    level_ = Level::outside;
    return true;
  }
  constexpr unsigned all = (1u << static_cast<unsigned>(Field::dtype)) |
                           (1u << static_cast<unsigned>(Field::shape)) |
                           (1u << static_cast<unsigned>(Field::offsets));
  if (level_ == Level::entry && fields_seen_ != all)
    fail(place(), " lacks 'dtype', 'shape' or 'data_offsets'");
  level_ = Level::top;
  return true;
}

bool SafetensorsSax::start_array(std::size_t) {
  if (level_ != Level::entry || (field_ != Field::shape && field_ != Field::offsets))
    refuse("a list");
  level_ = field_ == Field::shape ? Level::shape : Level::offsets;
  offsets_seen_ = 0;
  return true;
}

bool SafetensorsSax::end_array() {
  if (level_ == Level::offsets && offsets_seen_ != 2)
    fail(place(), " has ", offsets_seen_, " 'data_offsets' in place of 2");
  level_ = Level::entry;
  return true;
}

}  // namespace lockstep::io
