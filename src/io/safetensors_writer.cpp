#include "io/safetensors_writer.hpp"

#include <algorithm>
#include <sstream>

#include <nlohmann/json.hpp>

#include "io/in_quotes.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::io {
namespace {

// A JSON string. @throws InvalidArgument for text that is not UTF-8.
std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error& error) {
    LOCKSTEP_THROW(InvalidArgument, in_quotes(text), " is not UTF-8: ", error.what());
  }
}

void append_metadata(lockstep::detail::TextStream& out, const Metadata& metadata) {
  if (metadata.empty()) return;
  const char* separator = "\"__metadata__\":{";
  for (const auto& [key, value] : metadata)
    out << std::exchange(separator, ",") << json_string(key) << ':' << json_string(value);
  out << "}";
}

void append_entry(lockstep::detail::TextStream& out, const SafetensorsEntry& entry) {
  out << json_string(entry.name) << ":{\"dtype\":\"" << entry.format << "\",\"shape\":[";
  const char* separator = "";
  for (const auto extent : entry.shape) out << std::exchange(separator, ",") << extent;
  out << "],\"data_offsets\":[" << entry.begin << ',' << entry.end << "]}";
}

std::string json_text(const SafetensorsHeader& header) {
  lockstep::detail::TextStream out;
  out << '{';
  append_metadata(out, header.metadata);
  const char* separator = header.metadata.empty() ? "" : ",";
  for (const SafetensorsEntry& entry : header.entries) {
    out << std::exchange(separator, ",");
    append_entry(out, entry);
  }
  out << '}';
  return std::move(out).str();
}

}  // namespace

void place_safetensors_entries(std::vector<SafetensorsEntry>& entries) {
  const auto element_size = [](const SafetensorsEntry& entry) {
    return size_of(dtype_of_format(entry.format).value());
  };
  std::ranges::sort(entries, {}, &SafetensorsEntry::name);
  const auto twice = std::ranges::adjacent_find(entries, {}, &SafetensorsEntry::name);
  LOCKSTEP_CHECK(twice == entries.end(), InvalidArgument, "two tensors are named ",
                 in_quotes(twice->name), "; names in a file must differ");
  // The order of Python's safetensors: of 8 bytes whole numbers come first, of 4 and 2 last.
  const auto rank = [&](const SafetensorsEntry& entry) {
    const DType dtype = dtype_of_format(entry.format).value();
    return std::pair(-static_cast<int>(element_size(entry)),
                     dtype == DType::i64 ? -1 : static_cast<int>(dtype));
  };
  std::ranges::stable_sort(entries, {}, rank);
  std::uint64_t place = 0;
  for (SafetensorsEntry& entry : entries) {
    LOCKSTEP_CHECK(entry.name != "__metadata__", InvalidArgument,
                   "'__metadata__' is no name for a tensor: the format reserves it");
    entry.begin = place;
    place += static_cast<std::uint64_t>(numel(entry.shape)) * element_size(entry);
    entry.end = place;
  }
}

std::string write_safetensors_header(const SafetensorsHeader& header, std::uint64_t alignment) {
  constexpr std::size_t length_bytes = 8;
  std::string text = json_text(header);
  const std::uint64_t used = length_bytes + text.size();
  text.append((alignment - used % alignment) % alignment, ' ');
  LOCKSTEP_CHECK(text.size() <= max_safetensors_header, InvalidArgument, "a header of ",
                 text.size(), " bytes would be needed; at most ", max_safetensors_header,
                 " are allowed");
  std::string bytes(length_bytes, '\0');
  for (unsigned i = 0; i < length_bytes; ++i)
    bytes[i] = static_cast<char>(static_cast<unsigned char>(text.size() >> (8 * i)));
  return bytes + text;
}

void write_safetensors(AtomicFile& file, std::span<const std::pair<std::string, Tensor>> tensors,
                       const Metadata& metadata) {
  SafetensorsHeader header;
  header.metadata = metadata;
  std::map<std::string_view, Tensor> values;
  for (const auto& [name, tensor] : tensors) {
    LOCKSTEP_CHECK(tensor.defined(), InvalidArgument, "tensor ", in_quotes(name),
                   " is undefined; only defined tensors can be saved");
    header.entries.push_back({.name = name,
                              .format = std::string(format_of_dtype(tensor.dtype())),
                              .shape = tensor.shape()});
    values.emplace(name, tensor);
  }
  place_safetensors_entries(header.entries);
  const std::string text = write_safetensors_header(header);
  file.write(text);
  for (const SafetensorsEntry& entry : header.entries) {
    const Tensor host = values.at(entry.name).detach().to(cpu).contiguous();
    file.write({static_cast<const std::byte*>(host.data_ptr()), host.nbytes()});
  }
}

void save_safetensors(const std::filesystem::path& path,
                      std::span<const std::pair<std::string, Tensor>> tensors,
                      const Metadata& metadata) {
  AtomicFile file(path);
  write_safetensors(file, tensors, metadata);
  file.commit();
}

}  // namespace lockstep::io
