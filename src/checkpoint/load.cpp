#include "checkpoint/load.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "checkpoint/contents.hpp"
#include "checkpoint/exchange.hpp"
#include "checkpoint/names.hpp"
#include "checkpoint/reading.hpp"
#include "checkpoint/share.hpp"
#include "io/in_quotes.hpp"
#include "lockstep/autograd/grad_mode.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/crc32c.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

/// What rank 0 reads for all: each rank parses it.
struct Texts {
  std::string manifest, state;
  std::vector<std::vector<std::string>> headers;  ///< of each TensorState's files
};

/// Tells what lies there instead of a checkpoint.
void check_is_checkpoint(const fs::path& path) {
  std::error_code unknown;
  if (fs::exists(path / manifest_name, unknown) || unknown) return;
  LOCKSTEP_CHECK(fs::exists(path), CorruptData, path.string(),
                 " is not there; give a checkpoint, such as runs/a/step-1000");
  LOCKSTEP_CHECK(fs::is_directory(path), CorruptData, path.string(),
                 " is no checkpoint but a file; give its folder, such as runs/a/step-1000");
  const auto last = newest(path);
  LOCKSTEP_CHECK(!last, CorruptData, path.string(),
                 " is a folder of checkpoints; give one of them, such as the newest, ",
                 last->path.string());
  LOCKSTEP_THROW(CorruptData, path.string(), " is no checkpoint: it has no ", manifest_name);
}

Texts read_texts(const fs::path& checkpoint, const Registry& registry) {
  check_is_checkpoint(checkpoint);
  Texts texts{.manifest = read_manifest_text(checkpoint), .state = {}, .headers = {}};
  const Manifest manifest = parse_manifest(texts.manifest, (checkpoint / manifest_name).string());
  texts.state = read_state_text(checkpoint, manifest);
  for (const auto& [name, tensors] : registry.tensors) {
    texts.headers.push_back(read_headers(checkpoint, manifest, name));
    // No load needs it; but it is part of what is verified.
    const auto index =
        std::ranges::find(manifest.files, detail::concat(name, index_suffix), &FileRecord::name);
    if (index != manifest.files.end()) read_checked(checkpoint, *index);
  }
  return texts;
}

std::string pack_texts(const Texts& texts) {
  std::string message;
  append_text(message, texts.manifest);
  append_text(message, texts.state);
  for (const std::vector<std::string>& headers : texts.headers) {
    append_number(message, headers.size());
    for (const std::string& header : headers) append_text(message, header);
  }
  return message;
}

Texts unpack_texts(std::string_view message) {
  Texts texts;
  texts.manifest = take_text(message);
  texts.state = take_text(message);
  while (!message.empty()) {
    const std::uint64_t count = take_number(message);
    std::vector<std::string>& headers = texts.headers.emplace_back();
    while (headers.size() < count) headers.emplace_back(take_text(message));
  }
  return texts;
}

/// Pieces of a state now.
using Pieces = std::map<std::string, Piece>;

Pieces pieces_by_name(const TensorState& state) {
  Pieces pieces;
  error_of([&] {  // whatever is wrong with the state now may be right with the one that is loaded
    for (Piece& piece : state.pieces()) pieces.emplace(piece.name, std::move(piece));
  });
  return pieces;
}

/// Whether what is read may come into the piece at last.
bool loads_in_place(const Piece& piece) {
  return piece.loads_in_place && piece.tensor.device().is_cpu() && piece.tensor.is_contiguous();
}

bool fits(const Piece& piece, const TensorSpec& wanted,
          const std::optional<parallel::ShardRange>& range) {
  return piece.range == range && piece.tensor.dtype() == wanted.dtype &&
         (range ? range->whole : piece.tensor.shape()) == wanted.shape;
}

Reading plan_reading(StemContents contents, std::vector<std::string> headers,
                     const TensorState& state, bool partial) {
  Reading reading{.contents = std::move(contents),
                  .headers = std::move(headers),
                  .ranges = {},
                  .tensors = {},
                  .in_place = {}};
  const NoGradGuard no_recording;
  const Pieces pieces = partial ? Pieces() : pieces_by_name(state);
  // What the state has under no such name may be one of its tensors under another one of several,
  // whose values it compares.
  std::vector<TensorSpec> others;
  for (const PlannedTensor& tensor : reading.contents.tensors)
    if (!pieces.contains(tensor.spec.name)) others.push_back(tensor.spec);
  const auto may_be_another = [&](const TensorSpec& spec) {
    return std::ranges::any_of(others, [&](const TensorSpec& other) {
      return other.dtype == spec.dtype && other.shape == spec.shape;
    });
  };
  for (const PlannedTensor& tensor : reading.contents.tensors) {
    const auto range = state.wanted ? state.wanted(tensor.spec.name, tensor.spec.shape)
                                    : std::optional<parallel::ShardRange>();
    const Shape shape = range ? Shape{range->count} : tensor.spec.shape;
    const auto piece = pieces.find(tensor.spec.name);
    const bool in_place = piece != pieces.end() && loads_in_place(piece->second) &&
                          fits(piece->second, tensor.spec, range) && !may_be_another(tensor.spec);
    reading.ranges.push_back(range);
    reading.in_place.push_back(in_place);
    reading.tensors.push_back(in_place ? piece->second.tensor.detach().reshape(shape)
                                       : empty(shape, {.dtype = tensor.spec.dtype}));
  }
  return reading;
}

/// One place is filled by one state: what others have there comes into new tensors.
void keep_places_apart(std::span<Reading> readings) {
  std::map<const std::byte*, const std::byte*> taken;  // from where to where
  const auto take = [&](const std::byte* begin, const std::byte* end) {
    const auto next = taken.lower_bound(end);
    if (next != taken.begin() && std::prev(next)->second > begin) return false;
    return taken.emplace(begin, end).second;
  };
  for (Reading& reading : readings)
    for (std::size_t i = 0; i < reading.tensors.size(); ++i) {
      Tensor& tensor = reading.tensors[i];
      const auto* begin = static_cast<const std::byte*>(tensor.data_ptr());
      if (!reading.in_place[i] || tensor.numel() == 0 || take(begin, begin + tensor.nbytes()))
        continue;
      tensor = empty_like(tensor);
      reading.in_place[i] = false;
    }
}

/// What is wrong, on rank 0; nothing if all is right.
void check(const fs::path& checkpoint, const StemContents& contents,
           std::span<const std::string> messages) {
  Contributions sums(sizes_of(contents));
  for (const std::string& message : messages) sums.add_packed(message);
  for (std::size_t i = 0; i < contents.files.size(); ++i) {
    const std::vector<std::uint32_t> found = sums.checksums(i);
    const auto& expected = contents.files[i].checksums;
    const auto wrong = std::ranges::mismatch(found, expected).in1;
    LOCKSTEP_CHECK(
        wrong == found.end(), CorruptData, checkpoint.string(), ": ",
        describe(damage_of(contents.files[i], static_cast<std::size_t>(wrong - found.begin()),
                           *wrong, &contents)));
  }
}

std::vector<std::string> names_of(const Registry& registry) {
  std::vector<std::string> names;
  for (const auto& [name, state] : registry.tensors) names.push_back(name);
  for (const auto& [name, state] : registry.values) names.push_back(name);
  return names;
}

/// Ranks have to load the same states of the same checkpoint, or take over those of different ones.
void check_alike(comm::Communicator& group, const fs::path& checkpoint, const Registry& registry) {
  std::string own = detail::concat("of ", io::in_quotes(checkpoint.filename().string()), ":");
  for (const std::string& name : names_of(registry)) own += " " + io::in_quotes(name);
  const std::string first = comm::broadcast_bytes(group, own, 0, "what is loaded");
  run_on_all(group, "all ranks load alike", [&] {
    LOCKSTEP_CHECK(own == first, InvalidArgument, "it would load ", own, ", and rank 0 ", first);
  });
}

/// The tensors that go to all ranks must be the same on all.
void check_exchange(comm::Communicator& group, std::span<const Reading> readings) {
  std::string own;
  for (const Reading& reading : readings)
    for (const auto& range : reading.ranges) own += range ? '0' : '1';
  const std::string first = comm::broadcast_bytes(group, own, 0, "which tensors go to all ranks");
  run_on_all(group, "the same tensors go to all ranks", [&] {
    LOCKSTEP_CHECK(own == first, InvalidArgument,
                   "it wants parts of other tensors than rank 0: all ranks or none share one out");
  });
}

/// Tensors that go to all ranks are in place on all of them, or on none.
void agree_on_places(comm::Communicator& group, std::span<Reading> readings) {
  std::string own;
  for (const Reading& reading : readings)
    for (std::size_t i = 0; i < reading.tensors.size(); ++i)
      own += !reading.ranges[i] && reading.in_place[i] ? '1' : '0';
  const bool is_same = own == comm::broadcast_bytes(group, own, 0, "which tensors stay in place");
  if (comm::all_reduce_scalar(group, is_same ? 1.0 : 0.0, comm::ReduceOp::min()) > 0) return;
  run_on_all(group, "memory for tensors that cannot stay in place", [&] {
    for (Reading& reading : readings)
      for (std::size_t i = 0; i < reading.tensors.size(); ++i) {
        if (reading.ranges[i] || !reading.in_place[i]) continue;
        reading.tensors[i] = empty_like(reading.tensors[i]);
        reading.in_place[i] = false;
      }
  });
}

/// What looks like damage may be another checkpoint, which a rank sees under the same path.
void check_is_same(comm::Communicator& group, const fs::path& checkpoint,
                   const std::string& manifest) {
  run_on_all(group, "which checkpoint it is", [&] {
    LOCKSTEP_CHECK(read_manifest_text(checkpoint) == manifest, CorruptData, checkpoint.string(),
                   " is not the checkpoint that rank 0 loads: give all ranks the same folder");
  });
}

bool has_values(const StateFile& file, const std::string& name) {
  const auto has = [&](const NamedValues& values) { return values.contains(name); };
  return has(file.shared) || (!file.ranks.empty() && std::ranges::all_of(file.ranks, has));
}

void check_values(const fs::path& checkpoint, const Registry& registry, const StateFile& file) {
  for (const auto& [name, value] : registry.values)
    LOCKSTEP_CHECK(has_values(file, name), InvalidArgument, checkpoint.string(), " has no ",
                   io::in_quotes(name),
                   ": it was saved without; ManagerOptions::partial loads what it has");
}

/// Whether a load of these states reads all files.
bool has_all_states(const Manifest& manifest, const Registry& registry) {
  return std::ranges::all_of(manifest.files, [&](const FileRecord& file) {
    return file.name == state_name || std::ranges::any_of(registry.tensors, [&](const auto& each) {
             return is_file_of(file.name, each.first) ||
                    file.name == detail::concat(each.first, index_suffix);
           });
  });
}

/// On rank 0.
std::vector<std::string> absent_states(const fs::path& checkpoint, const Registry& registry) {
  const Manifest manifest = read_manifest(checkpoint);
  const StateFile file =
      parse_state_file(read_state_text(checkpoint, manifest), (checkpoint / state_name).string());
  const std::vector<std::string> stems = stems_of(manifest);
  std::vector<std::string> absent;
  for (const auto& [name, state] : registry.tensors)
    if (std::ranges::find(stems, name) == stems.end()) absent.push_back(name);
  for (const auto& [name, state] : registry.values)
    if (!has_values(file, name)) absent.push_back(name);
  return absent;
}

Loaded read_once(comm::Communicator& group, const fs::path& checkpoint, const Registry& registry,
                 bool partial, Staging& staging) {
  check_alike(group, checkpoint, registry);
  std::string message;
  run_on_all(group, "what a checkpoint has", [&] {
    if (group.rank() == 0) message = pack_texts(read_texts(checkpoint, registry));
  });
  message = comm::broadcast_bytes(group, message, 0, "what a checkpoint has");
  Loaded loaded;
  std::vector<Reading>& readings = loaded.readings;
  run_on_all(group, "what is wanted of a checkpoint", [&] {
    Texts texts = unpack_texts(message);
    const Manifest manifest = parse_manifest(texts.manifest, (checkpoint / manifest_name).string());
    loaded.values = parse_state_file(texts.state, (checkpoint / state_name).string());
    check_values(checkpoint, registry, loaded.values);
    loaded.is_all = has_all_states(manifest, registry);
    for (std::size_t i = 0; i < registry.tensors.size(); ++i) {
      const auto& [name, state] = registry.tensors[i];
      std::vector<std::string>& headers = texts.headers.at(i);
      StemContents contents = contents_of(checkpoint, manifest, name, headers);
      readings.push_back(plan_reading(std::move(contents), std::move(headers), state, partial));
    }
    keep_places_apart(readings);
  });
  check_exchange(group, readings);
  agree_on_places(group, readings);
  const std::vector<std::string> sums =
      read_and_exchange(group, checkpoint, readings, staging, loaded.former);
  for (std::size_t i = 0; i < readings.size(); ++i) {
    const auto messages = gather_on_first(group, sums[i], "checksums of a checkpoint");
    try {
      run_on_all(group, "a checkpoint is whole", [&] {
        if (group.rank() == 0) check(checkpoint, readings[i].contents, messages);
      });
    } catch (const CorruptData&) {  // on all ranks
      check_is_same(group, checkpoint, unpack_texts(message).manifest);
      throw;
    }
    NamedTensors& tensors = loaded.tensors.emplace_back();
    for (std::size_t t = 0; t < readings[i].tensors.size(); ++t) {
      Tensor& tensor = readings[i].tensors[t];
      tensors.emplace_back(readings[i].contents.tensors[t].spec.name,
                           readings[i].in_place[t] ? tensor : std::exchange(tensor, {}));
    }
  }
  return loaded;
}

}  // namespace

std::vector<std::string> leave_out_absent(comm::Communicator& group, const fs::path& checkpoint,
                                          Registry& registry) {
  check_alike(group, checkpoint, registry);
  std::string message;
  run_on_all(group, "what a checkpoint lacks", [&] {
    if (group.rank() != 0) return;
    for (const std::string& name : absent_states(checkpoint, registry)) append_text(message, name);
  });
  message = comm::broadcast_bytes(group, message, 0, "what a checkpoint lacks");
  std::vector<std::string> absent;
  for (std::string_view left = message; !left.empty();) absent.emplace_back(take_text(left));
  const auto is_absent = [&](const auto& each) {
    return std::ranges::find(absent, each.first) != absent.end();
  };
  std::erase_if(registry.tensors, is_absent);
  std::erase_if(registry.values, is_absent);
  return absent;
}

Loaded read_checkpoint(comm::Communicator& group, const fs::path& checkpoint,
                       const Registry& registry, bool partial, Staging& staging) {
  try {
    return read_once(group, checkpoint, registry, partial, staging);
  } catch (const Unreadable&) {  // on all ranks
    std::this_thread::sleep_for(before_another_try);
  }
  return read_once(group, checkpoint, registry, partial, staging);
}

}  // namespace lockstep::checkpoint
