#include "lockstep/io/sharded_safetensors.hpp"

#include <deque>
#include <iomanip>
#include <set>
#include <sstream>

#include "io/config_file.hpp"
#include "io/in_quotes.hpp"
#include "io/safetensors_writer.hpp"
#include "io/shallow_json.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/file_error.hpp"
#include "lockstep/io/mapped_file.hpp"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;
using Named = std::pair<std::string, Tensor>;

std::string single_name(std::string_view name) { return std::string(name) + ".safetensors"; }
std::string index_name(std::string_view name) { return single_name(name) + ".index.json"; }

std::uint64_t bytes_of(const Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.numel()) * size_of(tensor.dtype());
}

/// Which file holds which tensor.
std::map<std::string, std::string> read_index(const fs::path& path) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  try {
    const auto index = parse_shallow_json<nlohmann::json>(text);
    return index.at("weight_map").get<std::map<std::string, std::string>>();
  } catch (const CorruptData& error) {
    LOCKSTEP_THROW(CorruptData, path.string(), ": not an index of tensors: ", error.what());
  } catch (const nlohmann::json::exception& error) {
    LOCKSTEP_THROW(CorruptData, path.string(), ": not an index of tensors: ", error.what());
  }
}

/// Consecutive tensors that share a file.
std::vector<std::span<const Named>> shards_of(std::span<const Named> tensors,
                                              std::uint64_t shard_bytes) {
  std::vector<std::span<const Named>> shards;
  std::size_t begin = 0;
  std::uint64_t held = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = bytes_of(tensors[i].second);
    if (i > begin && held + bytes > shard_bytes) {
      shards.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      held = 0;
    }
    held += bytes;
  }
  shards.push_back(tensors.subspan(begin));
  return shards;
}

std::string shard_name(std::size_t number, std::size_t count) {
  lockstep::detail::TextStream out;
  out << "model-" << std::setfill('0') << std::setw(5) << number << "-of-" << std::setw(5) << count
      << ".safetensors";
  return std::move(out).str();
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) throw FileError("remove", path, error.value());
}

void check_names(std::span<const Named> tensors) {
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors)
    LOCKSTEP_CHECK(names.insert(name).second, InvalidArgument, "two tensors are named ",
                   in_quotes(name), "; names in a folder must differ");
}

}  // namespace

ShardedSafetensors ShardedSafetensors::open_file(const fs::path& file) {
  ShardedSafetensors result;
  result.files_.push_back(SafetensorsFile::open(file));
  for (std::string& name : result.files_.front().names())
    result.file_of_.emplace(std::move(name), 0);
  return result;
}

ShardedSafetensors ShardedSafetensors::open(const fs::path& folder, std::string_view name) {
  const fs::path single = folder / single_name(name), index = folder / index_name(name);
  if (fs::exists(single) || !fs::exists(index)) return open_file(single);
  ShardedSafetensors result;
  std::map<std::string, std::size_t> opened;
  for (const auto& [tensor, file] : read_index(index)) {
    LOCKSTEP_CHECK(fs::path(file).filename() == file && file != "..", CorruptData, index.string(),
                   ": ", in_quotes(file), " is not the name of a file beside the index");
    const auto [place, is_new] = opened.emplace(file, result.files_.size());
    if (is_new) result.files_.push_back(SafetensorsFile::open(folder / file));
    LOCKSTEP_CHECK(result.files_[place->second].contains(tensor), CorruptData, index.string(), ": ",
                   in_quotes(file), " has no tensor ", in_quotes(tensor));
    result.file_of_.emplace(tensor, place->second);
  }
  for (const auto& [file, number] : opened)
    for (const std::string& tensor : result.files_[number].names()) {
      const auto place = result.file_of_.find(tensor);
      LOCKSTEP_CHECK(place == result.file_of_.end() || place->second == number, CorruptData,
                     index.string(), ": ", in_quotes(file), " has a tensor ", in_quotes(tensor),
                     ", too, which the index places in another file");
    }
  return result;
}

std::vector<std::string> ShardedSafetensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

Tensor ShardedSafetensors::tensor(std::string_view name) const {
  const auto found = file_of_.find(name);
  LOCKSTEP_CHECK(found != file_of_.end(), InvalidArgument, "no tensor ", in_quotes(name));
  return files_[found->second].tensor(name);
}

NamedTensors ShardedSafetensors::tensors(std::string_view prefix) const {
  NamedTensors tensors;
  for (const auto& [name, file] : file_of_)
    if (name.starts_with(prefix))
      tensors.emplace_back(name.substr(prefix.size()), files_[file].tensor(name));
  return tensors;
}

double ShardedSafetensors::element_count() const {
  double count = 0;
  for (const auto& [name, file] : file_of_)
    count += static_cast<double>(numel(files_[file].entry(name).shape));
  return count;
}

void save_sharded_safetensors(const fs::path& folder, std::span<const Named> tensors,
                              std::uint64_t shard_bytes, const Metadata& metadata) {
  const auto shards = shards_of(tensors, shard_bytes);
  if (shards.size() == 1) {
    save_safetensors(folder / single_name("model"), tensors, metadata);
    std::error_code ignored;  // model.safetensors is read first
    fs::remove(folder / index_name("model"), ignored);
    return;
  }
  check_names(tensors);
  nlohmann::ordered_json weight_map;
  std::uint64_t total = 0;
  std::deque<AtomicFile> files;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string file = shard_name(i + 1, shards.size());
    write_safetensors(files.emplace_back(folder / file), shards[i], metadata);
    files.back().finish();  // so that any number needs no descriptors
    for (const auto& [name, tensor] : shards[i]) {
      weight_map[name] = file;
      total += bytes_of(tensor);
    }
  }
  const nlohmann::ordered_json contents{{"metadata", {{"total_size", total}}},
                                        {"weight_map", std::move(weight_map)}};
  AtomicFile index(folder / index_name("model"));
  index.write(contents.dump(2) + "\n");
  index.finish();
  // From here on an earlier save's shards go: without its index nobody takes them for a model's.
  remove_file(fs::weakly_canonical(folder / index_name("model")));
  for (AtomicFile& file : files) file.commit();
  index.commit();
  remove_file(folder / single_name("model"));
}

}  // namespace lockstep::io
