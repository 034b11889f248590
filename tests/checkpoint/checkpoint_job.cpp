// A training run that goes on from its newest checkpoint and saves after each step:
//
//     checkpoint_job FOLDER STEPS [--same] [--beside] [--kill-at N] [--kill-rank R] [--by SIGNAL]
//                    [--full FILE] [--mark STEP] [--snapshots MEMORY] [--other-state R]
//
// --same: always under the same name. --beside: trains on while a save is written, until the next
// one; with --mark the next one counts, too, as far as it is made at once. --kill-at N: it dies at
// the N-th call that changes files, or rank R does; by SIGKILL, or the signal of a number. --full
// FILE: the disk is full while there is such a file, and the run goes on with saves that fail; a
// signal stops it behind a step, with code 75. --mark STEP: it sends SIGSTOP to itself before and
// behind the save of that step, for who traces it.
// --other-state R: rank R alone adds a state before its second save. --snapshots MEMORY: in the
// place of checkpoints it takes snapshots in memory. Prints "orphan NAME" of each file that a save
// left behind which was killed, "resumed STEP HASH", and for each step "step STEP HASH" and, once
// durable, "saved STEP". A run that ends prints "end HASH".

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "checkpoint/training_run.hpp"
#include "io/file_calls.hpp"
#include "lockstep/io/crc32c.hpp"

namespace ls = lockstep;

namespace {

int calls_left = 0, killing = SIGKILL;

void count() {
  if (calls_left > 0 && --calls_left == 0) std::raise(killing);
}

/// Dies before a call, or, at every second number, behind it.
void die_at(int number) {
  calls_left = number;
  auto& calls = ls::io::file_calls;
  calls.create = [](const char* path, mode_t mode) {
    count();
    return ls::io::FileCalls().create(path, mode);
  };
  calls.write = [](int file, const void* data, size_t size) {
    count();
    return ::write(file, data, size);
  };
  calls.fsync = [](int file) {
    count();
    return ::fsync(file);
  };
  calls.close = [](int file) {
    count();
    return ::close(file);
  };
  calls.rename = [](const char* from, const char* to) {
    count();
    return ::rename(from, to);
  };
  calls.exchange = [](const char* one, const char* other) {
    count();
    return ls::io::FileCalls().exchange(one, other);
  };
  calls.make_folder = [](const char* path, mode_t mode) {
    count();
    return ::mkdir(path, mode);
  };
  calls.allocate = [](int file, off_t size) {
    count();
    return ls::io::FileCalls().allocate(file, size);
  };
  calls.resize = [](int file, off_t size) {
    count();
    return ::ftruncate(file, size);
  };
  calls.pwrite = [](int file, const void* data, size_t size, off_t offset) {
    // Half of the bytes may be there when it dies.
    if (calls_left == 1) (void)!::pwrite(file, data, size / 2, offset);
    count();
    return ::pwrite(file, data, size, offset);
  };
}

std::string full_file;

bool is_full() {
  if (::access(full_file.c_str(), F_OK) != 0) return false;
  errno = ENOSPC;
  return true;
}

/// Nothing can be written while there is a file.
void fill_disk_by(std::string_view file) {
  full_file = file;
  auto& calls = ls::io::file_calls;
  calls.pwrite = [](int descriptor, const void* data, size_t size, off_t offset) {
    return is_full() ? -1 : ::pwrite(descriptor, data, size, offset);
  };
  calls.allocate = [](int descriptor, off_t size) {
    return is_full() ? -1 : ls::io::FileCalls().allocate(descriptor, size);
  };
}

std::string hash_of(ls::testing::TrainingRun& run) {
  const std::string weights = run.bytes();
  return std::to_string(ls::io::crc32c(std::as_bytes(std::span(weights))));
}

}  // namespace

int main(int argc, char** argv) {
  bool same = false, beside = false;
  int call = 0, rank = 0, marked = 0, odd_rank = -1;
  std::string_view full, snapshots;
  for (int i = 3; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--same") same = true;
    if (option == "--beside") beside = true;
    if (option == "--kill-at" && i + 1 < argc) call = std::atoi(argv[i + 1]);
    if (option == "--by" && i + 1 < argc) killing = std::atoi(argv[i + 1]);
    if (option == "--kill-rank" && i + 1 < argc) rank = std::atoi(argv[i + 1]);
    if (option == "--mark" && i + 1 < argc) marked = std::atoi(argv[i + 1]);
    if (option == "--other-state" && i + 1 < argc) odd_rank = std::atoi(argv[i + 1]);
    if (option == "--full" && i + 1 < argc) full = argv[i + 1];
    if (option == "--snapshots" && i + 1 < argc) snapshots = argv[i + 1];
  }
  if (!full.empty()) fill_disk_by(full);
  if (call > 0 && rank == ls::comm::launch_rank()) die_at(call);
  return ls::Session::run(argc, argv, [&](ls::Session& session) {
    std::optional<ls::StopRequest> stop;
    if (!full.empty()) stop.emplace(session);
    ls::checkpoint::ManagerOptions options;
    if (!snapshots.empty())
      options = {.interval = ls::checkpoint::SaveInterval::every_steps(1 << 20),
                 .snapshot_every = 1,
                 .snapshot_folder = snapshots};
    ls::testing::TrainingRun run(session.host_world(), argv[1], ls::testing::with_all(0, options));
    const auto tell = [&](const std::string& line) {
      if (session.is_main()) std::cout << line << std::endl;
    };
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[1])) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(".") && name != ".lock") tell("orphan " + entry.path().string());
    }
    std::int64_t other = 0;
    run.resume();
    const std::int64_t first = run.steps();
    tell("resumed " + std::to_string(run.steps()) + " " + hash_of(run));
    run.on_step = [&](std::int64_t step) {
      if (!snapshots.empty()) {
        run.checkpoints().save_if_due(step);
        tell("step " + std::to_string(step) + " " + hash_of(run));
        return std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      tell("step " + std::to_string(step) + " " + hash_of(run));
      if (step == marked) std::raise(SIGSTOP);
      if (step == 2 && session.rank() == odd_rank) run.checkpoints().add("other", other);
      run.checkpoints().save(same ? 1 : step);  // waits for the one before
      if (!beside) run.checkpoints().wait();
      if (marked > 0 && step == marked + (beside ? 1 : 0)) std::raise(SIGSTOP);
      const bool is_saved = run.checkpoints().error().empty();
      if (!is_saved && !stop) throw ls::Error(run.checkpoints().error());
      const std::int64_t saved = beside ? step - 1 : step;
      if (is_saved && saved > first) tell("saved " + std::to_string(saved));
      if (stop) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // faults take longer
      if (stop && stop->after(step)) std::exit(ls::StopRequest::exit_code);
    };
    run.train(std::atoll(argv[2]));
    if (!snapshots.empty()) run.checkpoints().save(run.steps());
    tell("end " + hash_of(run));
    return 0;
  });
}
