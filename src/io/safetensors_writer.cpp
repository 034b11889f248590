#include <algorithm>
#include <locale>
#include <sstream>

#include <nlohmann/json.hpp>

#include "io/in_quotes.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/safetensors.hpp"

namespace lockstep::io {
namespace {

using Named = std::pair<std::string, Tensor>;

// The tensors in the order in which they are written.
std::vector<const Named*> file_order(std::span<const Named> tensors) {
  std::vector<const Named*> order;
  for (const auto& named : tensors) {
    LOCKSTEP_CHECK(named.second.defined(), InvalidArgument, "tensor ", in_quotes(named.first),
                   " is undefined; only defined tensors can be saved");
    LOCKSTEP_CHECK(named.first != "__metadata__", InvalidArgument,
                   "'__metadata__' is no name for a tensor: the format reserves it");
    order.push_back(&named);
  }
  std::ranges::sort(order, [](const Named* a, const Named* b) {
    const auto key = [](const Named* named) {
      return std::pair(-static_cast<int>(size_of(named->second.dtype())), named->second.dtype());
    };
    return std::tuple(key(a), std::string_view(a->first)) <
           std::tuple(key(b), std::string_view(b->first));
  });
  return order;
}

// Names in sorted order make doubled ones neighbours; the order of writing does not.
void check_names_differ(std::span<const Named> tensors) {
  std::vector<std::string_view> names;
  for (const auto& named : tensors) names.push_back(named.first);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  LOCKSTEP_CHECK(twice == names.end(), InvalidArgument, "two tensors are named ", in_quotes(*twice),
                 "; names in a file must differ");
}

// A JSON string. @throws InvalidArgument for text that is not UTF-8.
std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error& error) {
    LOCKSTEP_THROW(InvalidArgument, in_quotes(text), " is not UTF-8: ", error.what());
  }
}

void append_metadata(std::ostringstream& out, const Metadata& metadata) {
  if (metadata.empty()) return;
  const char* separator = "\"__metadata__\":{";
  for (const auto& [key, value] : metadata)
    out << std::exchange(separator, ",") << json_string(key) << ':' << json_string(value);
  out << "}";
}

void append_entry(std::ostringstream& out, const Named& named, std::uint64_t begin) {
  const Tensor& tensor = named.second;
  out << json_string(named.first) << ":{\"dtype\":\"" << format_of_dtype(tensor.dtype())
      << "\",\"shape\":[";
  const char* separator = "";
  for (const auto extent : tensor.shape()) out << std::exchange(separator, ",") << extent;
  out << "],\"data_offsets\":[" << begin << ',' << begin + tensor.nbytes() << "]}";
}

std::string header_text(std::span<const Named* const> order, const Metadata& metadata) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << '{';
  append_metadata(out, metadata);
  const char* separator = metadata.empty() ? "" : ",";
  std::uint64_t offset = 0;
  for (const Named* named : order) {
    out << std::exchange(separator, ",");
    append_entry(out, *named, offset);
    offset += named->second.nbytes();
  }
  out << '}';
  std::string text = std::move(out).str();
  text.append((8 - text.size() % 8) % 8, ' ');  // keeps the tensors' bytes aligned
  return text;
}

void write_header(AtomicFile& file, std::string_view text) {
  LOCKSTEP_CHECK(text.size() <= max_safetensors_header, InvalidArgument, "a header of ",
                 text.size(), " bytes would be needed; at most ", max_safetensors_header,
                 " are allowed");
  std::byte length[8];
  for (unsigned i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(text.size() >> (8 * i));
  file.write(length);
  file.write(text);
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, std::span<const Named> tensors,
                      const Metadata& metadata) {
  check_names_differ(tensors);
  const auto order = file_order(tensors);
  const std::string text = header_text(order, metadata);
  AtomicFile file(path);
  write_header(file, text);
  for (const Named* named : order) {
    const Tensor host = named->second.detach().to(cpu).contiguous();
    file.write({static_cast<const std::byte*>(host.data_ptr()), host.nbytes()});
  }
  file.commit();
}

}  // namespace lockstep::io
