// Trains a byte-level GPT-2 on text, data-parallel over the ranks that mpirun starts:
//
//     mpirun -np 2 build/bin/train_gpt --data book.txt --steps 1000
//
// The global batch is split over the ranks, and each rank's part into micro-batches, so the result
// does not depend on the number of ranks.

#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>

#include <lockstep/lockstep.hpp>

#include "support/asynchrony.hpp"
#include "support/command_line.hpp"
#include "support/communication.hpp"
#include "support/compression.hpp"
#include "support/loop_options.hpp"
#include "support/mixed_precision.hpp"
#include "support/optimizers.hpp"
#include "support/same_options.hpp"
#include "support/step_memory.hpp"
#include "support/token_batches.hpp"
#include "support/training_report.hpp"

namespace ls = lockstep;
namespace fs = std::filesystem;
using ls::Tensor;

namespace {

constexpr std::int64_t byte_values = 256;

struct Options {
  std::vector<fs::path> data;
  std::int64_t layers = 4, heads = 4, channels = 128, context = 128;
  std::int64_t global_batch = 16, micro_batch = 0, steps = 400;
  examples::OptimizerChoice optimizer{.lr = 3e-3, .betas = {0.9, 0.95}};
  double grad_clip = 1.0;
  std::string schedule = "cosine", decay = "matrices", device = "auto", dtype = "f32", amp = "none",
              compress = "none";
  std::int64_t warmup = 20, sample = 256, check_divergence = 0;
  std::uint64_t seed = 1;
  int threads = 0, zero = 0;
  bool pack = false, deterministic = false, capture = false;
  fs::path init_from, tokens, save, log;
  examples::MemoryOptions memory;
  examples::CommunicationOptions communication;
  examples::Asynchrony async;
  examples::LoopChoice loop;
};

void add_options(CLI::App& app, Options& o) {
  const auto positive = examples::whole_number(1), count = examples::whole_number(0);
  const auto not_negative = examples::not_negative();
  app.add_option("--data", o.data, "Text files; default: the project's own text")
      ->check(CLI::ExistingFile);
  app.add_option("--layers", o.layers, "Transformer blocks")->check(positive);
  app.add_option("--heads", o.heads, "Attention heads")->check(positive);
  app.add_option("--channels", o.channels, "Width; a multiple of the heads")->check(positive);
  app.add_option("--context", o.context, "Tokens in a sequence")->check(positive);
  app.add_flag(
      "--pack", o.pack,
      "Each line of text is a document; several share a sequence, and see only themselves");
  app.add_option("--global-batch", o.global_batch, "Sequences a step, over all ranks")
      ->check(positive);
  app.add_option(
         "--micro-batch", o.micro_batch,
         "Sequences at once on a rank; 0: its whole part, or one with --reduction reproducible")
      ->check(count);
  app.add_option("--steps", o.steps, "Optimizer steps")->check(positive);
  add_optimizer_options(app, o.optimizer);
  app.add_option("--lr", o.optimizer.lr, "Peak learning rate")->check(not_negative);
  app.add_option("--schedule", o.schedule, "constant or cosine (down to a tenth)")
      ->check(CLI::IsMember({"constant", "cosine"}));
  app.add_option("--warmup", o.warmup, "Steps of linear warm-up")->check(count);
  app.add_option("--betas", o.optimizer.betas, "Decay rates of two moments, B1,B2")
      ->delimiter(',')
      ->expected(2)
      ->check(examples::below_one());
  app.add_option("--weight-decay", o.optimizer.weight_decay,
                 "Weight decay; default: 0.1 with adamw, else the optimizer's own")
      ->check(not_negative);
  app.add_option("--decay", o.decay, "What decays: all parameters, or only matrices")
      ->check(CLI::IsMember({"all", "matrices"}));
  app.add_option("--grad-clip", o.grad_clip, "Largest gradient norm; 0: no limit")
      ->check(not_negative);
  app.add_option("--seed", o.seed, "Seed of weights, batches and samples");
  app.add_option("--device", o.device, "auto, cpu or cuda");
  app.add_option("--dtype", o.dtype, "f64 or f32")->check(CLI::IsMember({"f64", "f32"}));
  examples::add_amp_option(app, o.amp);
  examples::add_capture_option(app, o.capture);
  examples::add_compress_option(app, o.compress);
  examples::add_communication_options(app, o.communication);
  examples::add_async_option(app, o.async);
  examples::add_loop_options(app, o.loop);
  app.add_option("--zero", o.zero,
                 "What ranks share out: 1 optimizer states, 2 averaged gradients too, 3 parameters "
                 "too (ZeRO)")
      ->check(CLI::IsMember({0, 1, 2, 3}));
  app.add_option("--check-divergence", o.check_divergence,
                 "Steps between checks that all ranks have the same weights; 0: none")
      ->check(count);
  app.add_option("--threads", o.threads, "CPU threads a rank; 0: its share of the cores")
      ->check(examples::whole_number(0, 4096));
  app.add_option("--init-from", o.init_from, "Hugging Face GPT-2 folder, or its .safetensors file")
      ->check(examples::gpt2_files());
  app.add_option("--tokens", o.tokens,
                 "Replay batches: safetensors with `tokens` i64 [steps, batch, context + 1]")
      ->check(CLI::ExistingFile);
  app.add_option("--save", o.save, "Write the trained weights here (safetensors)")
      ->check(examples::writable_model());
  app.add_option("--log", o.log, "Write one JSON object a step here")
      ->check(examples::writable_file());
  examples::add_memory_options(app, o.memory);
  app.add_option("--sample", o.sample, "Bytes of text to generate at the end")
      ->check(examples::whole_number(0, 1 << 20));
  app.add_flag("--deterministic", o.deterministic, "Only algorithms that repeat bit for bit");
}

using Model = ls::models::Gpt2;
using Replica = ls::DistributedDataParallel<Model>;

/// Where packed documents begin, and that they do not see each other.
ls::models::Gpt2ForwardOptions places_of(std::span<const Tensor> in) {
  if (in.size() == 2) return {};
  const ls::data::PackedBatch batch{in[0], in[1], in[2], in[3]};
  return {.positions = batch.positions, .mask = batch.mask()};
}

ls::LinearCrossEntropyOptions sum_of_losses() { return {.reduction = ls::Reduction::sum}; }

/// The mean over positions. Padding counts as one of loss 0: so all rows weigh the same, in
/// whatever micro-batch of whatever rank.
Tensor training_loss(Replica& replica, std::span<const Tensor> in) {
  if (in.size() == 2) return replica(in[0], in[1]);
  return replica(in[0], in[1], places_of(in), sum_of_losses()) / static_cast<double>(in[1].numel());
}

/// What the command line says, with what training of a GPT adds to it.
examples::OptimizerChoice optimizer_of(const Options& o) {
  examples::OptimizerChoice choice = o.optimizer;
  if (choice.name == "adamw" && !choice.weight_decay) choice.weight_decay = 0.1;
  choice.decay_all = o.decay == "all";
  return choice;
}

/// Linear warm-up, then constant or half a cosine down to a tenth.
ls::optim::Schedule schedule_of(const Options& o, std::int64_t steps) {
  ls::optim::Schedule main = ls::optim::ConstantLR{.factor = 1};
  if (o.schedule == "cosine")
    main = ls::optim::CosineAnnealingLR{.iterations = std::max<std::int64_t>(1, steps - o.warmup),
                                        .min_lr = 0.1 * o.optimizer.lr};
  return examples::after_warmup(main, o.warmup);
}

/// Mean loss over at most 64 sequences of the held-out text, spread over the ranks.
double evaluate(Model& model, const examples::TextDataset& text, const ls::Session& session) {
  const std::int64_t count = std::min<std::int64_t>(text.size(), 64);
  ls::parallel::MeanMetric loss(session.device());
  for (std::int64_t i = session.rank(); i < count; i += session.size()) {
    const std::int64_t index = i * text.size() / count;
    examples::Sequences batch = text.fetch({&index, 1}, {});
    const double targets = ls::ge(batch[1], 0).to(ls::DType::f64).sum().item();
    for (Tensor& each : batch) each = each.to(session.device());
    loss.add(model.forward(batch[0], batch[1], places_of(batch), sum_of_losses()), targets);
  }
  return loss.value(*session.world());
}

/// Continues the prompt byte by byte, drawing from the model's distribution.
std::string generate(Model& model, const std::string& prompt, const Options& o, ls::Device device) {
  ls::Generator generator(o.seed);
  std::vector<std::int64_t> tokens(prompt.begin(), prompt.end());
  for (std::int64_t n = 0; n < o.sample; ++n) {
    const auto length = std::min<std::ptrdiff_t>(std::ssize(tokens), o.context);
    const Tensor window =
        ls::from_span<std::int64_t>({tokens.end() - length, tokens.end()}, {1, length}, device);
    const Tensor logits = model.forward(window).select(1, -1).reshape({-1});
    const auto probabilities = ls::softmax(logits / 0.8, 0).to_vector<double>();
    double left = ls::uniform_from_bits(generator.next().word(0));
    std::size_t token = 0;
    while (token + 1 < probabilities.size() && (left -= probabilities[token]) >= 0) ++token;
    tokens.push_back(static_cast<std::int64_t>(token));
  }
  return {tokens.begin(), tokens.end()};
}

ls::DType dtype_of(const Options& o) { return o.dtype == "f64" ? ls::DType::f64 : ls::DType::f32; }

ls::nn::ModulePtr<Model> make_model(const Options& o) {
  ls::manual_seed(o.seed);
  return ls::models::gpt2({.layers = o.layers,
                           .heads = o.heads,
                           .channels = o.channels,
                           .context = o.context,
                           .vocabulary = byte_values,
                           .tensor = {.dtype = dtype_of(o)}});
}

/// What a loaded model needs: its own context, and a token for every byte unless tokens are given.
void adopt_sizes(const Model& model, Options& o) {
  o.context = model.options().context;
  LOCKSTEP_CHECK(!o.tokens.empty() || model.options().vocabulary >= byte_values, InvalidArgument,
                 o.init_from.string(), " knows ", model.options().vocabulary,
                 " tokens, text needs one for each of 256 byte values; give --tokens");
}

/// Where ranks wait for one of them longer than they should.
void tell_stragglers(Replica& replica, const ls::Session& session) {
  constexpr double worth_telling = 0.1;
  const ls::parallel::StragglerReport report = replica.stragglers();
  if (session.is_main() && session.size() > 1 && report.share(report.straggler()) > worth_telling)
    std::cout << report;
}

int run(ls::Session& session, CLI::App& app, Options o) {
  examples::check_same_options(
      *session.world(), app,
      {.own = {"--device", "--threads", "--save", "--log", "--pool", "--memory-snapshot"},
       .inputs = {"--data", "--tokens", "--init-from"}});
  ls::set_deterministic_algorithms(o.deterministic);
  std::optional<ls::nn::ModulePtr<Model>> loaded;
  if (!o.init_from.empty()) {
    loaded = ls::models::load_hugging_face(o.init_from, {.dtype = dtype_of(o)});
    adopt_sizes(**loaded, o);
  }
  examples::TokenBatches batches({.text = o.data,
                                  .replay = o.tokens,
                                  .context = o.context,
                                  .packs = o.pack,
                                  .global_batch = o.global_batch,
                                  .seed = o.seed,
                                  .device = session.device()},
                                 *session.world());
  if (o.communication.is_reproducible())
    LOCKSTEP_CHECK(batches.global_batch() % o.micro_batch == 0, InvalidArgument,
                   "--reduction reproducible cuts a batch of ", batches.global_batch(),
                   " sequences into equal micro-batches, not of ", o.micro_batch);
  const auto model = loaded ? *loaded : make_model(o);
  model->to(session.device());
  if (session.is_main())
    std::cout << "GPT-2 with " << model->parameter_count() << " parameters, " << o.dtype
              << (o.amp == "none" ? "" : " with products in " + o.amp) << ", " << session.size()
              << " rank(s) on " << session.device() << std::endl;
  ls::DistributedDataParallelOptions replica_options{.zero_stage = o.zero};
  o.communication.apply_to(replica_options);
  if (o.communication.is_reproducible()) {
    replica_options.reduction = ls::GradientReduction::reproducible;
    replica_options.micro_batches = static_cast<int>(batches.global_batch() / o.micro_batch);
  }
  Replica replica(model, session.world(), replica_options);
  const std::int64_t steps = batches.steps(o.steps);
  const auto compression = examples::comm_hook(o.compress, steps);
  if (compression) replica.register_comm_hook(compression);
  const auto delayed = examples::delayed_reduction(o.async);
  if (delayed) replica.register_comm_hook(delayed);
  auto average = [&] {
    const auto whole = replica.whole_parameters();
    return examples::make_average(model->named_parameters(), o.optimizer);
  }();
  const auto optimizer =
      examples::make_optimizer(replica.named_parameters(), optimizer_of(o), replica.shard_group());
  const auto averaging = examples::make_averaging(o.async, replica, *optimizer);
  ls::optim::LRScheduler scheduler(*optimizer, schedule_of(o, steps));
  ls::amp::GradScaler scaler = examples::make_scaler(o.amp, replica.shard_group());
  std::optional<ls::parallel::DivergenceCheck> divergence;
  if (o.check_divergence > 0)
    divergence.emplace(model->named_parameters(), session.world(),
                       ls::parallel::DivergenceCheckOptions{.every = o.check_divergence});

  constexpr double no_limit = std::numeric_limits<double>::infinity();
  ls::train::Step step(replica, *optimizer,
                       [&](std::span<const Tensor> in) { return training_loss(replica, in); },
                       {.scheduler = &scheduler,
                        .scaler = &scaler,
                        .average = average ? &*average : nullptr,
                        .autocast = examples::autocast(o.amp),
                        .max_norm = o.grad_clip > 0 ? o.grad_clip : no_limit,
                        .micro_batch = o.micro_batch,
                        .capture = o.capture});
  ls::train::Loop loop(session, o.loop.options(steps));
  loop.add(step);
  loop.add("batches", batches);
  if (averaging) loop.add("averaging", *averaging);
  if (delayed) loop.add("delayed", *delayed);
  if (const auto power_sgd = std::dynamic_pointer_cast<ls::parallel::PowerSgd>(compression))
    loop.add("power_sgd", *power_sgd, replica);
  if (batches.held_out())
    loop.evaluate = [&] {
      if (averaging) averaging->synchronize();  // at the end alone
      const auto scope = step.evaluation();
      return evaluate(*model, *batches.held_out(), session);
    };
  examples::TrainingReport report(loop, session,
                                  {.unit = "tokens",
                                   .units_a_step = batches.tokens_a_step(),
                                   .log = o.log,
                                   .skips_overflows = scaler.is_enabled(),
                                   .describe = [](double loss) {
                                     return ls::detail::concat("held-out loss ", loss,
                                                               " nats/byte");
                                   }});
  examples::StepMemory memory(o.memory, session, loop);
  examples::StepTraces traces(o.communication, *session.world());
  const int code = loop.run([&] {
    examples::Sequences batch = batches.next();
    const ls::train::StepResult result = memory([&] { return step(batch); });
    traces.add(replica.reducer());
    if (divergence) {
      const auto whole = replica.whole_parameters();
      divergence->step();
    }
    return result;
  });
  report.finish(step);
  if (divergence) {  // before the weights are saved
    const auto whole = replica.whole_parameters();
    divergence->run();
  }
  if (averaging) averaging->synchronize();
  if (code == ls::StopRequest::exit_code) return code;
  if (o.communication.plan == "measured" && session.is_main()) std::cout << replica.report();
  tell_stragglers(replica, session);
  const auto scope = step.evaluation();
  if (session.is_main()) {
    if (!o.save.empty()) ls::models::save_hugging_face(*model, o.save);
    if (batches.held_out() && o.sample > 0)
      std::cout << "--- sample ---\n"
                << generate(*model, "The ", o, session.device()) << "\n--------------" << std::endl;
  }
  traces.write();  // behind the weights: a file that cannot be written loses none
  return examples::leave_together(session, code);
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Trains a byte-level GPT-2, data-parallel", "train_gpt");
  add_options(app, options);
  examples::parse(app, argc, argv);
  if (options.amp != "none" && options.dtype != "f32")
    examples::refuse(app, "--amp " + options.amp + " leaves f64 as it is; give --dtype f32");
  if (options.zero > 0 && options.compress != "none")
    examples::refuse(app, "--zero " + std::to_string(options.zero) + " and --compress " +
                              options.compress + " both say how gradients travel; give one");
  if (options.zero > 2 && options.capture)
    examples::refuse(app,
                     "--zero 3 gathers parameters when they are used, which --capture would do "
                     "once; give --zero 2");
  if (options.zero > 0 && options.communication.plan == "measured")
    examples::refuse(app, "--zero " + std::to_string(options.zero) +
                              " keeps its buckets, --plan measured moves them; give one");
  if (options.communication.is_reproducible()) {
    if (options.zero > 0 || options.compress != "none" || options.async.kind != "none" ||
        options.capture)
      examples::refuse(app,
                       "--reduction reproducible goes with none of --zero, --compress, --async and "
                       "--capture; give one of them");
    options.micro_batch = std::max<std::int64_t>(1, options.micro_batch);
  }
  if (options.capture && !options.communication.trace.empty())
    examples::refuse(app, "--trace has no times of steps that --capture makes; give one");
  examples::check_loop_options(app, options.loop);
  if (options.async.kind != "none" && (options.zero > 0 || options.compress != "none"))
    examples::refuse(app, "--async " + options.async.kind +
                              " goes with neither --zero nor --compress; give one of them");
  if (options.loop.patience > 0 && options.loop.eval_every == 0)
    examples::refuse(app, "--patience counts evaluations; give --eval-every, too");
  if (options.pack && !options.tokens.empty())
    examples::refuse(app, "--pack is about text, --tokens has sequences of its own; give one");
  if (options.loop.eval_every > 0 && !options.tokens.empty())
    examples::refuse(app, "--tokens has no text to evaluate with; leave --eval-every out");
  if (options.loop.eval_every > 0 && options.async.lets_ranks_drift())
    examples::refuse(app, "--eval-every would evaluate other weights on each rank with --async " +
                              options.async.kind + "; give one of them");
  if (options.async.lets_ranks_drift() && options.check_divergence > 0)
    examples::refuse(
        app, "--check-divergence would find the weights of ranks that train apart with --async " +
                 options.async.kind + "; give one of them");
  if (options.async.lets_ranks_drift() && options.optimizer.ema > 0)
    examples::refuse(app, "--ema would average other weights on each rank with --async " +
                              options.async.kind + "; give one of them");
  if (options.init_from.empty() && options.channels % options.heads != 0)
    examples::refuse(app, "--channels " + std::to_string(options.channels) +
                              " is not a multiple of --heads " + std::to_string(options.heads));
  return ls::Session::run(argc, argv, examples::in_one_line([&](ls::Session& session) {
                            return run(session, app, options);
                          }),
                          {.device = options.device,
                           .threads = options.threads,
                           .communicator = options.communication.communicator()});
} catch (const examples::Exit& exit) {
  return exit.code;
}
