#include "lockstep/checkpoint/folder.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "checkpoint/contents.hpp"
#include "checkpoint/exchange.hpp"
#include "checkpoint/names.hpp"
#include "checkpoint/run_folder.hpp"
#include "checkpoint/verification.hpp"
#include "checkpoint/verify_blocks.hpp"
#include "io/in_quotes.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/file_error.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

void verify_file(const fs::path& checkpoint, const Manifest& manifest, const FileRecord& record,
                 std::vector<Damage>& damage) {
  if (!fs::exists(checkpoint / record.name))
    return damage.push_back({.file = record.name, .tensors = {}, .where = "missing"});
  const std::vector<Damage> found =
      verify_blocks(checkpoint, manifest, record, 0, record.checksums.size(), From::cache,
                    [](bool) { return true; });
  damage.insert(damage.end(), found.begin(), found.end());
}

/// Which save a checkpoint is of: grows from one to the next. Damaged ones come first.
std::pair<std::uint64_t, std::uint64_t> save_of(const fs::path& checkpoint) {
  try {
    const Manifest manifest = read_manifest(checkpoint);
    return {manifest.generation, manifest.save};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::vector<Found> list(const fs::path& folder) {
  std::vector<Found> found;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  if (error == std::errc::no_such_file_or_directory) return found;
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const fs::path& path = entry->path();
    const auto step = step_of_name(path.filename().string());
    std::error_code unknown;
    // What cannot be looked at is told when it is read.
    if (step && (fs::exists(path / manifest_name, unknown) || unknown))
      found.push_back({*step, path});
  }
  if (error) throw io::FileError("readdir", folder, error.value());
  std::ranges::sort(found, {}, &Found::step);
  return found;
}

std::optional<Found> newest(const fs::path& folder) {
  const std::vector<Found> found = list(folder);
  const auto latest = read_latest(folder);
  for (const Found& each : found)
    if (latest && each.path.filename() == *latest) return each;
  const auto last = std::ranges::max_element(
      found, {}, [](const Found& each) { return std::pair(save_of(each.path), each.step); });
  return last == found.end() ? std::nullopt : std::optional(*last);
}

std::vector<Found> in_order_of_trial(const fs::path& folder) {
  std::vector<Found> found = list(folder);
  const auto latest = newest(folder);
  std::ranges::sort(found, [&](const Found& a, const Found& b) {
    const bool a_is_later = a.step > latest->step, b_is_later = b.step > latest->step;
    return a_is_later != b_is_later ? b_is_later : a.step > b.step;
  });
  return found;
}

std::optional<double> metric_of(const fs::path& checkpoint) {
  return read_manifest(checkpoint).metric;
}

std::optional<Found> best(const fs::path& folder) {
  std::optional<Found> found;
  double smallest = 0;
  for (const Found& each : list(folder)) try {
      const Manifest manifest = read_manifest(each.path);
      const auto metric = manifest.metric;
      if (!metric || (found && !(*metric < smallest))) continue;
      if (noted_verification(each.path, manifest) == Verification::damaged) continue;
      found = each;
      smallest = *metric;
    } catch (const Error&) {  // told when it is loaded
    }
  return found;
}

bool is_known_damaged(const fs::path& checkpoint) try {
  return noted_verification(checkpoint, read_manifest(checkpoint)) == Verification::damaged;
} catch (const CorruptData&) {
  return true;
} catch (const Unsupported&) {  // of another version: nothing is known of it
  return false;
}

std::string describe(const Damage& damage) {
  const bool is_inside = damage.where.starts_with("bit") || damage.where.starts_with("byte");
  std::string text =
      detail::concat(damage.file, is_inside ? " is damaged in " : " is ", damage.where);
  for (std::size_t i = 0; i < damage.tensors.size() && i < 3; ++i)
    text += detail::concat(i == 0 ? ": tensor " : ", ", io::in_quotes(damage.tensors[i]));
  if (damage.tensors.size() > 3)
    text += detail::concat(" or ", damage.tensors.size() - 3, " others");
  return text;
}

std::vector<Damage> verify(const fs::path& checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  std::vector<Damage> damage;
  for (const FileRecord& record : manifest.files) verify_file(checkpoint, manifest, record, damage);
  if (damage.empty() && noted_verification(checkpoint, manifest) == Verification::damaged)
    error_of([&] { note_verification(checkpoint, manifest, Verification::whole); });
  return damage;
}

std::vector<Damage> verify_latest(const fs::path& folder) {
  const fs::path path = folder / latest_name;
  std::error_code unknown;
  if (fs::symlink_status(path, unknown).type() == fs::file_type::not_found || read_latest(folder))
    return {};
  return {{.file = std::string(latest_name), .tensors = {}, .where = "not what a save wrote"}};
}

void prune(const fs::path& folder, int keep, bool keep_best) {
  LOCKSTEP_CHECK(keep >= 1, InvalidArgument, "keep ", keep, " checkpoints; give 1 or more");
  // One of no run gets no lock.
  if (!fs::exists(folder / lock_name) && !fs::exists(folder / manifest_name) &&
      list(folder).empty())
    return;
  RunFolder own(folder, 0);
  const auto last = newest(folder);
  if (!last) return;
  std::optional<std::int64_t> whole;
  for (const Found& each : in_order_of_trial(folder)) {
    const auto is_whole = [&] {
      try {
        return verify(each.path).empty();
      } catch (const Error&) {
        return false;
      }
    };
    if (!is_whole()) continue;
    whole = each.step;
    break;
  }
  std::optional<std::int64_t> best_step;
  if (const auto found = keep_best ? best(folder) : std::nullopt) best_step = found->step;
  std::set<std::int64_t> damaged;
  for (const Found& each : list(folder)) try {
      if (is_known_damaged(each.path)) damaged.insert(each.step);
    } catch (const Error&) {  // nothing is known of it
    }
  own.prune({.keep_last = keep, .best = best_step, .kept = whole, .damaged = damaged}, last->step);
}

}  // namespace lockstep::checkpoint
