#include "checkpoint/layout.hpp"

#include <iomanip>
#include <sstream>
#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/io/safetensors_header.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::uint64_t page = 4096;

io::SafetensorsEntry entry_of(const TensorSpec& spec) {
  return {.name = spec.name,
          .format = std::string(io::format_of_dtype(spec.dtype)),
          .shape = spec.shape};
}

TensorSpec spec_of(const io::SafetensorsEntry& entry) {
  return {
      .name = entry.name, .dtype = io::dtype_of_format(entry.format).value(), .shape = entry.shape};
}

// "model-00001-of-00002.safetensors"
std::string file_name(std::string_view stem, std::size_t number, std::size_t count) {
  lockstep::detail::TextStream name;
  name << stem << '-' << std::setfill('0') << std::setw(5) << number + 1 << "-of-" << std::setw(5)
       << count << ".safetensors";
  return std::move(name).str();
}

}  // namespace

Layout::Layout(std::string_view stem, std::vector<TensorSpec> tensors, std::uint64_t file_bytes) {
  std::vector<io::SafetensorsEntry> all;
  for (const TensorSpec& spec : tensors) all.push_back(entry_of(spec));
  io::place_safetensors_entries(all);
  std::vector<io::SafetensorsHeader> headers;
  std::uint64_t used = 0;
  for (io::SafetensorsEntry& entry : all) {
    const std::uint64_t bytes = entry.end - entry.begin;
    if (headers.empty() || used + bytes > file_bytes) {
      headers.emplace_back();
      used = 0;
    }
    entry.begin = used;
    entry.end = used += bytes;
    headers.back().entries.push_back(std::move(entry));
  }
  for (std::size_t file = 0; file < headers.size(); ++file) {
    std::string header = io::write_safetensors_header(headers[file], page);
    for (const io::SafetensorsEntry& entry : headers[file].entries)
      tensors_.push_back({.spec = spec_of(entry),
                          .file = file,
                          .offset = header.size() + entry.begin,
                          .bytes = entry.end - entry.begin});
    const std::uint64_t size = header.size() + headers[file].entries.back().end;
    files_.push_back(
        {.name = file_name(stem, file, headers.size()), .header = std::move(header), .size = size});
  }
}

std::string Layout::index() const {
  nlohmann::ordered_json index;
  std::uint64_t bytes = 0;
  for (const PlannedTensor& each : tensors_) bytes += each.bytes;
  index["metadata"]["total_size"] = bytes;
  nlohmann::json files = nlohmann::json::object();  // sorted by name
  for (const PlannedTensor& each : tensors_) files[each.spec.name] = files_[each.file].name;
  index["weight_map"] = files;
  return index.dump(2) + "\n";
}

}  // namespace lockstep::checkpoint
