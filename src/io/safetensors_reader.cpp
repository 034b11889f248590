#include <algorithm>
#include <cstring>

#include "io/in_quotes.hpp"
#include "lockstep/io/safetensors.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::io {

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  MappedFile file(path);
  SafetensorsHeader header = parse_safetensors_header(file.bytes(), path.string());
  return SafetensorsFile(std::move(file), std::move(header));
}

// The index refers to names inside the header's vector, whose elements stay where they are when the
// vector is moved.
SafetensorsFile::SafetensorsFile(MappedFile file, SafetensorsHeader header)
    : file_(std::move(file)), header_(std::move(header)) {
  for (std::size_t i = 0; i < header_.entries.size(); ++i) index_[header_.entries[i].name] = i;
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  names.reserve(size());
  for (const auto& entry : header_.entries) names.push_back(entry.name);
  return names;
}

const SafetensorsEntry& SafetensorsFile::entry(std::string_view name) const {
  const auto found = index_.find(name);
  LOCKSTEP_CHECK(found != index_.end(), InvalidArgument, path().string(), " has no tensor ",
                 in_quotes(name), "; it has ", size(), " others",
                 size() ? ", the first being " + in_quotes(header_.entries.front().name) : "");
  return header_.entries[found->second];
}

ArrayView SafetensorsFile::unaligned_view(std::string_view name) const {
  const SafetensorsEntry& found = entry(name);
  const auto dtype = dtype_of_format(found.format);
  LOCKSTEP_CHECK(dtype, Unsupported, path().string(), ": tensor ", in_quotes(name), " has dtype ",
                 found.format, ", which lockstep has no type for");
  const auto bytes =
      file_.bytes().subspan(header_.data_begin + found.begin, found.end - found.begin);
  if (*dtype == DType::boolean) {
    const auto wrong =
        std::ranges::find_if(bytes, [](std::byte b) { return std::to_integer<int>(b) > 1; });
    LOCKSTEP_CHECK(wrong == bytes.end(), CorruptData, path().string(), ": tensor ", in_quotes(name),
                   " is BOOL, but its byte ", wrong - bytes.begin(), " is ",
                   std::to_integer<int>(*wrong), "; 0 or 1 would be right");
  }
  return {const_cast<std::byte*>(bytes.data()), *dtype, found.shape,
          contiguous_strides(found.shape)};
}

ArrayView SafetensorsFile::view(std::string_view name) const {
  const ArrayView view = unaligned_view(name);
  LOCKSTEP_CHECK(reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.dtype) == 0,
                 Unsupported, path().string(), ": the bytes of tensor ", in_quotes(name),
                 " are not aligned for ", view.dtype, "; read a copy with tensor()");
  return view;
}

Tensor SafetensorsFile::tensor(std::string_view name) const {
  const ArrayView view = unaligned_view(name);
  Tensor result = empty(view.shape, {.dtype = view.dtype});
  if (result.nbytes() > 0) std::memcpy(result.data_ptr(), view.data, result.nbytes());
  return result;
}

NamedTensors SafetensorsFile::tensors(std::string_view prefix) const {
  NamedTensors tensors;
  for (const SafetensorsEntry& entry : header_.entries)
    if (entry.name.starts_with(prefix))
      tensors.emplace_back(entry.name.substr(prefix.size()), tensor(entry.name));
  return tensors;
}

}  // namespace lockstep::io
