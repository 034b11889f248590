#include "lockstep/checkpoint/manager.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <future>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/check_options.hpp"
#include "checkpoint/contents.hpp"
#include "checkpoint/exchange.hpp"
#include "checkpoint/later_copies.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/memory_snapshots.hpp"
#include "checkpoint/names.hpp"
#include "checkpoint/pace.hpp"
#include "checkpoint/read_back.hpp"
#include "checkpoint/registry.hpp"
#include "checkpoint/retained.hpp"
#include "checkpoint/run_folder.hpp"
#include "checkpoint/same_states.hpp"
#include "checkpoint/save.hpp"
#include "checkpoint/snapshot.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/take_over.hpp"
#include "checkpoint/throttle.hpp"
#include "comm/communicator_backend.hpp"
#include "comm/run_progress.hpp"
#include "core/current_message.hpp"
#include "lockstep/checkpoint/folder.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/crc32c.hpp"
#include "lockstep/memory/memory_pool.hpp"
#include "lockstep/observe/log.hpp"
#include "tensor/background_reads.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The same whenever it starts, and that of no other run, nor of a copy of its folder.
std::string name_of_run(const fs::path& path, const RunFolder& folder) {
  std::error_code error;  // then the path counts as it was given
  const fs::path resolved = fs::canonical(path, error);
  const std::string place = error ? path.string() : resolved.string();
  return detail::concat(folder.token().substr(0, 32), "-",
                        io::crc32c(std::as_bytes(std::span(place))));
}

/// How many seconds a rank may take of its own while others wait for it: not until their time-out.
double at_most(double seconds, const comm::Communicator& group) {
  const std::chrono::duration<double> timeout = *group.implementation().options().timeout;
  return std::min(seconds, timeout.count() / 4);
}

/// In seconds, with rests. Ranks wait for each other at the end, where one may be in a hurry alone
/// or have but a small part.
double longest_save(const comm::Communicator& group) { return at_most(20, group); }

/// Whether a checkpoint is one of a folder, and not of another run.
bool is_own(const fs::path& folder, const fs::path& checkpoint, std::int64_t step) {
  std::error_code error;
  return fs::equivalent(folder / name_of_step(step), checkpoint, error);
}

}  // namespace

struct Manager::State {
  fs::path path;
  CommunicatorPtr group;      // of the writer while it writes
  CommunicatorPtr decisions;  // of the training thread
  ManagerOptions options;
  Registry registry;
  std::optional<RunFolder> folder;   // on rank 0
  std::optional<Retained> retained;  // there
  ReadBack read_back;                // of the checkpoint saved last
  Staging staging;
  LaterCopies later;
  Throttle throttle;
  Snapshot snapshot;
  SameStates states{"a checkpoint, which all ranks save"};
  std::optional<MemorySnapshots> memory;
  std::thread writer;                       // behind the save deletes what is not kept
  std::future<void> written;                // the save is, or has failed
  bool is_under_way = false;                // a save that nobody has waited for
  std::optional<std::int64_t> kept, saved;  // by `keep`; the last step that was
  std::string refusal;                      // of this rank, to the writer
  std::string writer_error;                 // of the writer while it writes
  std::string error;
  std::atomic<std::int64_t> failed = 0;  // saves
  std::optional<Pace> pace;              // from the first question on
  Clock::time_point last_save, last_question;
  std::int64_t last_question_step = 0;
  double stall = 0;                 // of the last save, in its call
  double waited = 0;                // before it, by what writes to tensors
  double waits = 0;                 // behind it, by the same
  bool has_waited = true;           // as `waits` says
  std::atomic<double> writing = 0;  // its; negative while it is being written
  std::atomic<double> resting = 0;  // of that, because nobody waited
  bool is_prepared = false;
  std::thread preparer;
  std::atomic<bool> is_wanted = false;  // the memory that it or the writer prepares

  bool has_gone_back = false;    // since the last save; no writer is under way then
  std::int64_t remembered = -1;  // the last step that a snapshot in memory was asked for

  bool is_due(std::int64_t step);
  void remember(std::int64_t step);
  void open_folder();
  void make_memory();
  SnapshotSize reserve();
  void prepare();
  void start_writer();
  void end_threads();
  void write() noexcept;
  void note_read_back(Finding finding);
  void ask_read_back();
  void prune();

  LoadReport report;  // of the last load
};

bool Manager::State::is_due(std::int64_t step) {
  // What changed tensors since the last save has waited for its copies.
  if (!std::exchange(has_waited, true)) waits = waited_for_reads() - waited;
  if (options.interval.steps > 0) return step % options.interval.steps == 0;
  if (!pace) {
    pace.emplace(options.interval);
    pace->begin(step);
    last_save = last_question = Clock::now();
    last_question_step = step;
  }
  if (step < pace->next_question()) return false;
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, step - last_question_step));
  Measured own{.since_save = seconds_since(last_save),
               .a_step = seconds_since(last_question) / steps};
  last_question = Clock::now();
  last_question_step = step;
  own.stall = stall > 0 ? stall + waits : 0;
  const double last_writing = writing;
  own.writing = last_writing < 0 ? own.since_save : last_writing + read_back.seconds();
  return pace->decide(step, largest(*decisions, own));
}

/// In memory, if that is due. A step counts when the snapshot of the step before is there.
void Manager::State::remember(std::int64_t step) {
  if (!memory || step < 0 || step % options.snapshot_every != 0 || remembered == step) return;
  if (std::exchange(has_gone_back, false) && retained) retained->note_going_on(*folder);
  remembered = step;  // on all ranks, whether or not each can
  if (memory->last() != step) memory->take(registry, step, options.file_bytes);
}

/// Rank 0 takes the folder, and the others look whether it is the one that they have.
void Manager::State::open_folder() {
  const std::chrono::duration<double> timeout(at_most(options.lock_seconds, *group));
  std::string problem;
  if (group->rank() == 0)
    problem = error_of([&] {
      folder.emplace(path, options.lock_seconds);
      retained.emplace(path);
    });
  const std::string token =
      comm::broadcast_bytes(*group, folder ? folder->token() : "", 0, "the folder of checkpoints");
  if (group->rank() != 0 && !token.empty())
    problem = error_of([&] { check_same_folder(path, token, timeout); });
  problem = agree(*group, problem, "the folder of checkpoints");
  LOCKSTEP_CHECK(problem.empty(), InvalidArgument, problem);
}

void Manager::State::make_memory() {
  const std::string told = comm::broadcast_bytes(
      *group, folder ? detail::concat(folder->generation(), " ", name_of_run(path, *folder)) : "",
      0, "which run it is");
  lockstep::detail::TextReader words(told);
  std::uint64_t generation = 0;
  std::string name;
  words >> generation >> name;
  memory.emplace(group->split(0, group->rank()), options.snapshot_folder / ("lockstep-" + name),
                 generation, options.pin_memory);
}

/// Room for a snapshot of the states as large as they are now.
SnapshotSize Manager::State::reserve() {
  const SnapshotSize size =
      size_of_snapshot(registry, group->rank(), group->size(), options.file_bytes);
  staging.reserve(size.bytes, size.runs);
  return size;
}

/// Gets the memory of a snapshot beside training, so that the first save takes no longer than the
/// others. At the priority of training: where ranks have no processor to spare, it would else not
/// have it by then. What fails, fails again when that is taken, and is told.
void Manager::State::prepare() {
  is_prepared = true;
  is_wanted = false;  // a load may have ended it before
  error_of([this] {
    preparer = std::thread([this, device = reserve().device] {
      staging.touch(is_wanted);
      if (options.pin_memory) staging.pin(device, is_wanted);
    });
  });
}

// Without a thread nothing is saved; the other ranks' writers hear of it.
void Manager::State::start_writer() {
  is_under_way = true;
  is_wanted = false;
  const std::string problem = error_of([&] {
    std::packaged_task<void()> writes([this] { write(); });
    written = writes.get_future();
    writer = std::thread([this, writes = std::move(writes)]() mutable {
      writes();
      if (folder) folder->delete_left();
      if (options.pin_memory) staging.pin(later.device(), is_wanted);
    });
  });
  if (problem.empty()) return;
  later.finish();
  if (refusal.empty()) refusal = detail::concat("no thread could be started: ", problem);
  written = {};
  write();
}

/// The writer may be deleting, which takes as long as saving.
void Manager::State::end_threads() {
  is_wanted = true;
  if (preparer.joinable()) preparer.join();
  if (!writer.joinable()) return;
  const comm::LongWork waiting;
  writer.join();
}

// Runs beside training: whatever happens is kept for `wait`.
void Manager::State::write() noexcept {
  const Clock::time_point start = Clock::now();
  const std::string problem = error_of([&] {
    const SharedStates& all = states.answer(*group);
    note_read_back(all.finding);
    writer_error = all.difference;
    if (writer_error.empty())
      writer_error = write_checkpoint(*group, folder ? &*folder : nullptr, path, snapshot, later,
                                      throttle, refusal);
  });
  later.finish();
  if (!problem.empty()) writer_error = problem;
  resting = throttle.rested();
  writing = seconds_since(start);
  if (writer_error.empty()) {
    comm::note_saved(snapshot.step);
    if (folder) prune();
    if (options.read_back)
      read_back.start(path / name_of_step(snapshot.step), snapshot.step, group->rank(),
                      group->size(), longest_save(*group));
    return;
  }
  ++failed;
  if (group->rank() == 0)
    LOCKSTEP_LOG(warning, "saving the checkpoint of step ", snapshot.step,
                 " failed: ", writer_error);
}

// `saved` is the step before: who waits for this save sets it anew.
void Manager::State::note_read_back(Finding finding) {
  const auto damaged = finding.damaged();
  if (damaged) {
    ++failed;
    read_back.forget_damage(*damaged);
  }
  if (!retained) return;
  error_of([&] {
    if (damaged) retained->note_damaged(*damaged);
    if (finding.is_whole() && saved) retained->note_whole(*saved);
  });
}

/// What ranks know, before it is lost. Every rank must call it.
void Manager::State::ask_read_back() {
  if (!options.read_back) return;
  const std::int64_t own = read_back.finding().number();
  read_back.forget_last();
  note_read_back(
      Finding(compare(*group, "", false, own, "checkpoints that were read back").largest));
}

void Manager::State::prune() {
  const std::string problem = error_of([&] {
    retained->note_saved(snapshot);
    retained->prune(*folder, options, snapshot);
  });
  if (!problem.empty()) LOCKSTEP_LOG(warning, "old checkpoints stay: ", problem);
}

Manager::Manager(fs::path folder, const CommunicatorPtr& group, ManagerOptions options)
    : state_(std::make_unique<State>()) {
  LOCKSTEP_CHECK(group && group->device().is_cpu(), InvalidArgument,
                 "a checkpoint::Manager needs a group on the CPU: Session::host_world()");
  LOCKSTEP_CHECK(!folder.empty(), InvalidArgument,
                 "a checkpoint::Manager was given the empty name for its folder");
  std::error_code unknown;
  state_->path = fs::absolute(folder, unknown);  // the program may go elsewhere
  if (unknown) state_->path = std::move(folder);
  state_->group = group->split(0, group->rank());
  state_->decisions = group->split(0, group->rank());
  state_->options = options;
  run_on_all(*state_->group, "options of checkpoints", [&] { check(options); });
  check_same(*state_->group, options);
  state_->open_folder();
  if (options.snapshot_every > 0) state_->make_memory();
}

// Snapshots go where they are not needed any more, also when an exception ends the run.
Manager::~Manager() {
  wait();
  state_->end_threads();
  state_->read_back.cancel();
  if (state_->memory && state_->saved && state_->saved >= state_->memory->last())
    state_->memory->remove();
}

void Manager::add(std::string name, TensorState state) {
  state_->registry.add(std::move(name), std::move(state));
}

void Manager::add(std::string name, ValueState state) {
  state_->registry.add(std::move(name), std::move(state));
}

std::vector<std::string> Manager::tensor_names() const { return state_->registry.tensor_names(); }
bool Manager::has(std::string_view name) const noexcept { return state_->registry.has(name); }

bool Manager::keeps(const void* object) const noexcept {
  return std::ranges::any_of(state_->registry.tensors,
                             [&](const auto& each) { return each.second.object == object; });
}

void Manager::save(std::int64_t step, std::optional<double> metric) {
  State& state = *state_;
  state.remember(step);
  state.has_gone_back = false;  // of what it saves the folder is told
  comm::tell_step(step);
  state.last_save = Clock::now();
  wait();
  state.end_threads();
  state.read_back.cancel();
  std::exception_ptr failure;
  state.refusal.clear();
  try {
    const Finding finding = state.read_back.finding();
    state.read_back.forget_last();
    const bool takes_more = state.states.begin(*state.group, state.registry, finding);
    LOCKSTEP_CHECK(step >= 0, InvalidArgument, "a checkpoint of step ", step,
                   "; steps are counted from 0");
    state.snapshot =
        take_snapshot(state.registry, step, takes_more, state.group->rank(), state.group->size(),
                      state.options.file_bytes, state.staging, state.later);
    state.throttle.begin(longest_save(*state.group));
  } catch (...) {
    failure = std::current_exception();
    state.refusal = current_message();
    if (state.refusal.empty()) state.refusal = "its state cannot be copied";
  }
  if (state.refusal.empty()) state.refusal = error_of([&] { state.later.start(state.throttle); });
  if (!state.refusal.empty()) {
    state.later.discard();
    state.snapshot = {};
    state.snapshot.step = step;
  }
  if (metric && std::isfinite(*metric)) state.snapshot.metric = metric;
  state.snapshot.kept = state.kept;
  state.writing = -1;
  state.is_prepared = true;
  state.start_writer();
  if (failure) std::rethrow_exception(failure);  // the other ranks hear it from the writer
  if (!state.options.asynchronous) wait();
  state.stall = seconds_since(state.last_save);
  state.waited = waited_for_reads();
  state.has_waited = false;
}

bool Manager::is_due(std::int64_t step) {
  state_->remember(step);
  comm::note_progress(step);
  const bool is_due = state_->is_due(step);
  if (!is_due && !state_->is_prepared) state_->prepare();
  return is_due;
}

bool Manager::save_if_due(std::int64_t step, std::optional<double> metric) {
  const bool is_due_now = is_due(step);
  if (is_due_now) save(step, metric);
  return is_due_now;
}

void Manager::keep(std::int64_t step) noexcept { state_->kept = step; }

bool Manager::wait() {
  if (std::exchange(state_->is_under_way, false)) {
    const comm::LongWork waiting;
    state_->throttle.hurry();
    if (state_->written.valid()) state_->written.get();
    state_->error = std::exchange(state_->writer_error, {});
    if (state_->error.empty()) state_->saved = state_->snapshot.step;
  }
  return state_->error.empty();
}

const std::string& Manager::error() const noexcept { return state_->error; }
std::chrono::duration<double> Manager::save_time() const noexcept {
  const double writing = std::max(0.0, state_->writing - state_->resting);
  return std::chrono::duration<double>(state_->stall + writing);
}
bool Manager::is_read_back() const noexcept { return state_->read_back.is_whole(); }
std::int64_t Manager::failed_saves() const noexcept { return state_->failed; }
const LoadReport& Manager::load_report() const noexcept { return state_->report; }

std::int64_t Manager::load(const fs::path& checkpoint) {
  wait();
  const comm::LongWork loading;
  State& state = *state_;
  state.read_back.cancel();
  state.ask_read_back();
  state.report = {};
  Registry present = state.registry;
  std::vector<std::string> absent;
  if (state.options.partial) absent = leave_out_absent(*state.group, checkpoint, present);
  state.end_threads();
  error_of([&] { state.reserve(); });  // or what a load takes would be too small for the next save
  Loaded loaded =
      read_checkpoint(*state.group, checkpoint, present, state.options.partial, state.staging);
  state.report =
      take_over(*state.group, loaded, checkpoint, present, state.options.partial, absent);
  if (state.retained && is_own(state.path, checkpoint, loaded.values.step))
    state.retained->note_loaded(loaded.values.step, loaded.is_all);
  if (state_->memory) state_->memory->forget();
  if (state.saved) state.saved = std::min(*state.saved, loaded.values.step);  // steps come again
  state.remembered = -1;
  state.has_gone_back = true;
  state.pace.reset();
  memory_pool(cpu).trim(0);  // what was read and taken over; training may need none of it
  if (!state_->is_prepared) state_->prepare();
  comm::tell_step(loaded.values.step);
  return loaded.values.step;
}

std::optional<std::int64_t> Manager::load_newest() {
  wait();
  state_->end_threads();
  comm::Communicator& group = *state_->group;
  state_->states.check(group, state_->registry);
  if (state_->memory)
    state_->memory->recover(state_->folder ? &*state_->folder : nullptr, state_->path);
  std::string told;
  run_on_all(group, "checkpoints are looked for", [&] {
    if (group.rank() != 0) return;
    state_->folder->check_is_there();
    for (const Damage& each : verify_latest(state_->path))
      LOCKSTEP_LOG(warning, state_->path.string(), ": ", describe(each),
                   ": manifests tell which checkpoint is the newest");
    const auto latest = read_latest(state_->path);
    if (std::error_code unknown;
        latest && !fs::exists(state_->path / *latest / manifest_name, unknown) && !unknown)
      LOCKSTEP_LOG(warning, state_->path.string(), ": what was saved last, ", *latest,
                   ", is not there any more: the checkpoint before is tried");
    for (const Found& each : in_order_of_trial(state_->path))
      told += each.path.filename().string() + "\n";
  });
  lockstep::detail::TextReader names(
      comm::broadcast_bytes(group, told, 0, "checkpoints that there are"));
  std::string damage;
  int tried = 0;
  for (std::string name; std::getline(names, name); ++tried) try {
      if (!damage.empty() && group.rank() == 0)
        LOCKSTEP_LOG(warning, "the checkpoint before is tried: ", damage);
      return state_->saved = load(state_->path / name);  // with all that memory had
    } catch (const CorruptData& error) {
      damage = error.what();
      if (state_->retained) state_->retained->note_not_loaded(step_of_name(name).value_or(-1));
    }
  LOCKSTEP_CHECK(tried < 2, CorruptData, "none of the ", tried, " checkpoints of ",
                 state_->path.string(), " can be loaded, of the last one as ", damage);
  LOCKSTEP_CHECK(tried == 0, CorruptData, damage);
  comm::tell_step(0);
  return std::nullopt;
}

}  // namespace lockstep::checkpoint
