"""Plant faults one by one and see that a test fails: `python -m tests.net.faults [WORD...]`, about ten minutes for all.

Each fault is a piece of source, found by what it says wherever it stands, what it becomes, and the tests that must
notice, named by their functions. They are planted in a copy of the tree. With words only the faults whose names hold
one of them. Ends with 1 if a fault is not noticed, a piece is not found exactly once, or a test fails without a fault.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SECONDS = 180  # that the tests of one fault may take on a busy machine
PASSED, FAILED = 0, 1  # exit codes of pytest


class Fault(NamedTuple):
    """One mistake that somebody could make."""

    name: str
    piece: str
    instead: str
    tests: tuple[str, ...]


def fault(name: str, piece: str, instead: str, *tests: str) -> Fault:
    """`piece` and `instead` without `test_`."""
    return Fault(name, piece, instead, tests)


FAULTS = (
    # who is who: samples, their hashes, their order
    fault(
        "selected samples get ids in another order",
        "sample_ids=tuple(self.sample_ids[i] for i in rows),",
        "sample_ids=tuple(self.sample_ids[i] for i in sorted(rows)),",
        "whole_numbers_are_positions",
    ),
    fault(
        "the fingerprint leaves labels out",
        'labels = [] if self.grouping is None else [self.labels.astype("<i8")]',
        "labels: list[np.ndarray] = []",
        "a_golden_run_says_what_it_said",
    ),
    fault(
        "the fingerprint joins class names without their lengths",
        'digest.update(len(raw).to_bytes(8, "little") + raw)',
        "digest.update(raw)",
        "a_golden_run_says_what_it_said",
    ),
    fault(
        "the fingerprint of contents depends on their order",
        "rows = sorted(row.tobytes() for row in self.sha256)",
        "rows = [row.tobytes() for row in self.sha256]",
        "a_golden_run_says_what_it_said",
    ),
    fault(
        "rows are read by another frame's columns",
        "return replace(data, inputs=own.batch(data.items), modality=own)",
        "return data",
        "a_run_of_a_frame_reads_new_rows",
    ),
    fault(
        "the rows of a frame are shown unhashed",
        "seen = data.modality.show(item) if same else Preview()",
        "seen = data.modality.show(item)",
        "a_changed_row_is_not_shown_and_not_trained_on",
    ),
    fault(
        "inputs that differ from their rows are trained on",
        "found |= (hash_inputs(made) != hash_inputs(self.inputs[rows])).any(1)",
        "made = made[:0]",
        "a_changed_row_is_not_shown_and_not_trained_on",
    ),
    fault(
        "a run's own data keep the order of now",
        "if in_place else data.select(places, table)",
        "if in_place else data.select(np.sort(places), table)",
        "renamed_and_reordered_files_come_in_the_order_of_training",
    ),
    fault(
        "a run's own data leave edited samples out silently",
        "if why or kept.left_out:",
        "if why:",
        "edited_and_missing_samples_are_left_out_and_counted",
    ),
    fault(
        "training data that are given are taken as they lie",
        "            return found.positions\n",
        "            return np.arange(len(given))\n",
        "training_samples_are_known_in_any_order_and_number",
    ),
    fault(
        "equal pictures are told by their files",
        'rows = np.ascontiguousarray(self.pixel_sha256).view("V32").ravel()',
        'rows = np.ascontiguousarray(self.sha256).view("V32").ravel()',
        "the_same_picture_in_two_files_is_one_group",
    ),
    fault(
        "two samples may have one id",
        "if len(set(sample_ids)) != n:",
        "if len(set(sample_ids)) > n:",
        "a_hostile_sample_table_is_refused",
    ),
    fault(
        "selecting samples forgets who is withheld",
        "withheld=self.withheld[rows],",
        "withheld=None,",
        "a_selection_keeps_who_is_withheld_and_who_was_added",
    ),
    fault(
        "selecting samples forgets who was added",
        "added=self.added[rows],",
        "added=None,",
        "a_selection_keeps_who_is_withheld_and_who_was_added",
    ),
    fault(
        "the hash of pixels leaves out type and shape",
        'return f"{dtype.name} {\'x\'.join(map(str, shape))}\\n".encode("ascii")',
        'return b"\\n"',
        "the_hash_of_a_picture_covers_its_type_and_shape",
    ),
    fault(
        "of equal contents the same place is taken twice",
        "key=lambda j: (j in taken, self.names[j] != class_name, j)",
        "key=lambda j: (self.names[j] != class_name, j)",
        "another_order_of_equal_pictures_with_different_labels",
    ),
    fault(
        "evidence from a file is shown unhashed",
        "if not bool((hash_bytes(blob) == samples.sha256[i]).all()):",
        "if not len(blob):",
        "evidence_reads_the_file_again",
    ),
    fault(
        "evidence from memory is shown unhashed",
        "return bool((hash_pixels(image[None])[0] == samples.pixel_sha256[i]).all())",
        "return True",
        "evidence_from_arrays_is_hashed_again",
    ),
    # data on their way in
    fault(
        "the picture cache compares one stamp of several",
        'self._records["stamp"][found]).all(1)',
        'self._records["stamp"][found]).any(1)',
        "every_edit_is_noticed",
    ),
    fault(
        "the key of the picture cache leaves the rule out",
        "facts = (FORMAT, os.path.realpath(root), rule, _decoder(),",
        "facts = (FORMAT, os.path.realpath(root), _decoder(),",
        "another_rule_has_a_cache_of_its_own",
    ),
    fault(
        "pixels of the picture cache are not hashed",
        'good = (hash_pixels(pixels) == records["view_sha256"]).all(1)',
        "good = np.ones(len(pixels), dtype=np.bool_)",
        "any_flipped_bits_leave_the_table_as_it_is",
        "a_damaged_cache_is_a_warning_and_mended",
    ),
    fault(
        "held out by position, not by content",
        '[hashlib.sha256(b"holdout" + row.tobytes()).digest() for row in data.samples.pixel_sha256]',
        '[hashlib.sha256(b"holdout" + row.tobytes()).digest() for row in np.arange(len(data))]',
        "holdout_is_stratified_and_blind_to_order",
    ),
    fault(
        "a decision is applied to other content",
        "if samples.hex(place) != one.sha256:",
        "if len(samples.hex(place)) != len(one.sha256):",
        "a_row_for_other_content_is_refused_by_name",
    ),
    fault(
        "decisions are lost when data open again",
        "elif label in known:\n            labels[place] = known[label]",
        "elif label in known:\n            labels[place] = labels[place]",
        "changed_data_open_again_as_they_were",
    ),
    fault(
        "dropped samples come back when data open again",
        "if label is None:\n            kept[place] = False",
        "if label is None:\n            kept[place] = True",
        "changed_data_open_again_as_they_were",
    ),
    fault(
        "decisions are applied after a holdout",
        'if "holdout" in data.spec.options or DECISIONS in data.spec.options:',
        "if DECISIONS in data.spec.options:",
        "decisions_come_before_a_holdout_and_once",
    ),
    fault(
        "the brightest pixel wraps to black",
        "return ((pixels.astype(np.uint16) * 255 + 8) // 16).astype(np.uint8)[:, None]",
        "return ((pixels.astype(np.uint16) * 256 + 8) // 16).astype(np.uint8)[:, None]",
        "digits",
    ),
    fault(
        "the mean is taken off before pixels are scaled",
        "values = (images.float() / self.scale - self.mean) / self.std",
        "values = (images.float() - self.mean) / self.scale / self.std",
        "bytes_are_normalised_channel_by_channel",
    ),
    fault(
        "a formula goes into a CSV file as it is",
        'return f"\'{text}" if _FORMULA.match(text) else text',
        "return text",
        "a_file_of_decisions_comes_back",
        "names_are_text_everywhere_and_formulas_are_defused",
    ),
    # chance
    fault(
        "every epoch has the order of the first",
        "return torch.randperm(n, generator=keyed_generator(seed, epoch, 1))",
        "return torch.randperm(n, generator=keyed_generator(seed, 0, 1))",
        "epochs_and_seeds_differ",
    ),
    fault(
        "every epoch changes pictures alike",
        "return fold(seed, epoch, AUGMENTATION)",
        "return fold(seed, 0, AUGMENTATION)",
        "another_seed_epoch_or_index_gives_another_copy",
    ),
    fault(
        "a last batch of one sample stays alone",
        "if len(edges) > 2 and edges[-1] - edges[-2] < least:",
        "if len(edges) > 2 and edges[-1] - edges[-2] < 1:",
        "batches_cover_everything_and_none_is_too_small",
    ),
    fault(
        "label mixing may choose the sample itself",
        "pick = pick + (pick >= local).long()",
        "pick = pick + (pick > local).long()",
        "alpha_0_is_the_sample_itself_and_alpha_1_never",
    ),
    fault(
        "labels are mixed half as often as alpha says",
        "mixed = (uniform[0] < self.alpha) & (others > 0)",
        "mixed = (uniform[0] < self.alpha / 2) & (others > 0)",
        "the_target_is_another_as_often_as_alpha_says",
    ),
    # index -> sample
    fault(
        "a pair that names no sample names the first one",
        "local.where(there, 0)].where(there, -1)",
        "local.where(there, 0)].where(there, 0)",
        "pairs_beyond_the_table_are_refused",
    ),
    fault(
        "a pair of a place beyond its class names no sample and is let through",
        "if bool((index < 0).any()):",
        "if bool((index < -1).any()):",
        "pairs_that_name_no_sample_are_refused",
    ),
    fault(
        "slots of a class begin one row too late",
        "rows = (self.starts[classes].unsqueeze(1) + local).clamp(max=self.index_map.n - 1)  # (B, M)\n"
        "        scores: Tensor",
        "rows = (self.starts[classes].unsqueeze(1) + local + 1).clamp(max=self.index_map.n - 1)  # (B, M)\n"
        "        scores: Tensor",
        "the_packed_head_equals_a_loop_over_layers",
    ),
    fault(
        "slots beyond the class are not masked",
        "scores: Tensor = self.linear(features)\n        return scores.masked_fill(~self.valid(classes), -torch.inf)",
        "scores: Tensor = self.linear(features)\n        return scores",
        "the_shared_head_is_one_layer_with_a_mask",
    ),
    fault(
        "a class has one slot too many",
        "torch.arange(index_map.largest, device=classes.device) < index_map.sizes[classes].unsqueeze(1)",
        "torch.arange(index_map.largest, device=classes.device) <= index_map.sizes[classes].unsqueeze(1)",
        "valid_slots_name_each_sample_once_and_only_they_have_scores",
    ),
    fault(
        "smoothed targets reach classes without samples",
        "there = (net.index_map.sizes > 0).expand_as(output.logits) if net.has_empty else None",
        "there = None",
        "smoothing_of_the_class_loss_is_in_the_total_alone_and_spares_empty_classes",
    ),
    fault(
        "parts of a sample pass for the sample",
        'assert found.owner is None, "this network has one key for each sample, not for parts of it"',
        "assert len(found.features)",
        "a_network_with_one_key_for_each_sample_takes_no_parts_of_it",
    ),
    fault(
        "the index branch is told the predicted class, not the one given",
        "given = self._groups(logits) if classes is None else classes",
        "given = logits.argmax(1)",
        "the_class_given_reaches_the_index_branch_only_where_it_is_concatenated",
    ),
    fault(
        "a key goes to the row of its index, not of its sample",
        "self.keys[self.rows[index] - self.shard.first] = unit(features)",
        "self.keys[index - self.shard.first] = unit(features)",
        "refreshed_keys_are_the_features_of_their_own_samples",
    ),
    fault(
        "a key that is observed is no longer of unit length",
        "self.keys[rows] = unit(MOMENTUM * self.keys[rows] + (1 - MOMENTUM) * seen)",
        "self.keys[rows] = MOMENTUM * self.keys[rows] + (1 - MOMENTUM) * seen",
        "observing_moves_keys_of_those_samples_and_no_others",
    ),
    fault(
        "the row of a key is taken for its sample",
        "index = self.order[found.row.clamp(min=0)].where(found.row >= 0, -1)",
        "index = found.row",
        "the_best_are_those_of_a_plain_softmax",
    ),
    fault(
        "rows within a class are counted from its first key",
        "found.append(TopK(best.score, best.row + begin))",
        "found.append(TopK(best.score, best.row))",
        "within_equals_brute_force_of_each_class",
    ),
    fault(
        "of equal scores the later sample is named",
        "return torch.add(LAST_ROW - rows, ordered, alpha=2**32)",
        "return torch.add(rows, ordered, alpha=2**32)",
        "of_equal_scores_the_lower_sample_is_named_whatever_was_asked_for",
    ),
    fault(
        "int8 keys do not use their whole range",
        "step = largest / LEVELS",
        "step = largest / (LEVELS // 2)",
        "int8_uses_the_whole_range_of_each_row",
    ),
    fault(
        "equal samples do not share their weight",
        "return scores if self.equal is None else share_equal_scores(scores, self.classes, self.equal)",
        "return scores",
        "equal_samples_have_the_same_weight",
    ),
    fault(
        "equal samples each get the weight of all of them",
        "return (top + (sums / count).log()).gather(1, place)",
        "return (top + sums.log()).gather(1, place)",
        "only_equal_samples_are_changed_and_their_sum_is_kept",
    ),
    fault(
        "a score that is not finite names a sample",
        "def _refuse_not_finite(finite: Tensor) -> None:\n    if not bool(finite.all()):",
        "def _refuse_not_finite(finite: Tensor) -> None:\n    if not len(finite):",
        "a_number_that_is_not_finite_is_an_error_that_names_the_row",
    ),
    fault(
        "joint weights are not shares within their class",
        "return within + (log_class - sums.log())[:, labels]",
        "return within + log_class[:, labels]",
        "joint_weights_of_far_apart_scores_are_those_of_float64",
    ),
    # withheld samples
    fault(
        "explanations name withheld samples",
        "if not run.samples.withheld.any():\n        return run.network, None",
        "if run is not None:\n        return run.network, None",
        "withheld_samples_are_never_named_and_their_share_goes_to_the_others",
    ),
    fault(
        "positions among the samples left are taken for positions in the table",
        "return index if self._kept is None else self._kept",
        "return index if self._kept is None or len(index) else self._kept",
        "withheld_samples_are_never_named_and_their_share_goes_to_the_others",
        "withheld_samples_are_never_named",
        "withheld_samples_are_neither_known_nor_named",
    ),
    fault(
        "the weight of a withheld sample is that of another",
        "return place.where(self._kept[place] == index, -1)",
        "return place",
        "a_withheld_sample_has_no_weight",
    ),
    fault(
        "credit of the samples left goes to the first of the table",
        "return values.new_zeros(self.count).index_copy_(0, self._kept, values)",
        "return torch.cat([values, values.new_zeros(self.count - len(values))])",
        "withheld_samples_are_never_credited",
    ),
    fault(
        "a tool asks a head itself",
        "    best = answered.best(1)  # refuses what is not finite",
        "    best = answered._by.network.scores(answered._output).best(1)  # refuses what is not finite",
        "only_the_attributor_makes_a_sample_of_what_a_head_says",
    ),
    fault(
        "figures count withheld samples",
        "if run.samples.withheld.any():\n        active = np.flatnonzero(~run.samples.withheld[own])",
        "if run is None:\n        active = np.flatnonzero(~run.samples.withheld[own])",
        "evaluation_leaves_withheld_samples_out",
    ),
    fault(
        "withheld marks are not written",
        "if flags.any():  # left out otherwise",
        "if flags.all():  # left out otherwise",
        "flags_and_sources_come_back_from_the_files",
    ),
    fault(
        "an erased sample leaves its key to the next one",
        "with_keys(run.network, torch.tensor(samples.labels), keys_of(head, torch.from_numpy(kept)))",
        "with_keys(run.network, torch.tensor(samples.labels), keys_of(head, torch.arange(len(kept))))",
        "names_are_right_after_any_sequence_of_changes",
    ),
    fault(
        "an erased sample leaves its losses to the next one",
        "np.ascontiguousarray(run.history[:, kept])",
        "np.ascontiguousarray(run.history[:, : len(kept)])",
        "the_losses_of_an_added_sample_are_minus_one_and_an_erased_one_has_none",
    ),
    # what is said of an answer
    fault(
        "what is far from the training samples is supported",
        'supported = columns["support"] >= self._run.config.threshold',
        'supported = columns["support"] <= self._run.config.threshold',
        "unseen_digits_are_supported_however_few_were_trained_on",
    ),
    fault(
        "the bar of support is set at the other end",
        'if looks else ""),\n        "threshold": float(torch.quantile(support.double(), level))',
        'if looks else ""),\n        "threshold": float(torch.quantile(support.double(), 1 - level))',
        "the_level_is_the_share_turned_away",
    ),
    fault(
        "classes given are those of the first batch",
        "given = [None] * len(parts) if classes is None else split(classes, size)",
        "given = [None] * len(parts) if classes is None else [classes[: len(part)] for part in parts]",
        "classes_given",
        "the_batch_does_not_matter",
    ),
    fault(
        "an input that is not finite is explained",
        '    if not all_finite(queries):\n        raise NonFiniteError("the input holds',
        '    if not len(queries):\n        raise NonFiniteError("the input holds',
        "what_cannot_be_explained_is_refused",
    ),
    fault(
        "an interval is too wide",
        "half = Z95 / spread * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))",
        "half = Z95 * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))",
        "both_intervals_are_scipys",
    ),
    fault(
        "a hit at 5 is a hit at 1",
        "return np.asarray((index[:, :k] == own[:, None]).any(1))",
        "return np.asarray((index[:, :1] == own[:, None]).any(1))",
        "index_hit",
    ),
    fault(
        "no sample is taken for the first one",
        "return np.asarray((same & (found >= 0)).any(1))",
        "return np.asarray(same.any(1))",
        "no_sample_is_no_hit_even_for_the_last_sample",
    ),
    # files
    fault(
        "a file gets its name before it is on the disk",
        "view = view[os.write(handle, view) :]\n        os.fsync(handle)",
        "view = view[os.write(handle, view) :]",
        "everything_is_on_the_disk_before_it_gets_its_name",
    ),
    fault(
        "the manifest is replaced before its files",
        "for name in kept:\n            if (staged / name).exists():\n"
        "                (staged / name).replace(folder / name)\n"
        "        atomic.sync_folder(folder)\n        atomic.sync_folder(staged)\n"
        "        (staged / NAME).replace(folder / NAME)",
        "(staged / NAME).replace(folder / NAME)\n        for name in kept:\n            if (staged / name).exists():\n"
        "                (staged / name).replace(folder / name)\n"
        "        atomic.sync_folder(folder)\n        atomic.sync_folder(staged)",
        "two_kills_in_a_row_are_no_worse",
    ),
    fault(
        "a sweep takes what a living process writes",
        "except PermissionError:\n        return False\n    return False",
        "except PermissionError:\n        return False\n    return True",
        "sweep_takes_orphans_of_ours_and_nothing_else",
    ),
    fault(
        "the hash of a file is not compared",
        "if sha256 is not None and (found := _sha256(file)) != sha256:",
        "if sha256 is not None and (found := _sha256(file)) == '':",
        "a_flipped_bit_is_refused",
    ),
    fault(
        "the manifest's own hash is not compared",
        "if raw != _encode(entries):",
        "if not raw:",
        "a_flipped_bit_is_refused",
        "a_hostile_manifest_is_refused",
    ),
    fault(
        "a pickle is not told by its content",
        "refuse_foreign(file, where)",
        "file.seek(0)",
        "a_renamed_pickle_is_refused_by_content",
    ),
    fault(
        "JSON of any size is read",
        'if len(data) > limit:\n        raise UnsafeFileError(f"{name}: {len(data):,} bytes of JSON',
        'if len(data) < 0:\n        raise UnsafeFileError(f"{name}: {len(data):,} bytes of JSON',
        "json_of_too_many_bytes_is_refused_unparsed",
    ),
    fault(
        "a file of any size is read",
        "if actual > limit:",
        "if actual < 0:",
        "a_gigabyte_of_json_is_refused_unread",
    ),
    fault(
        "a key that occurs twice in JSON is read",
        "if key in found:\n            raise _RefusedError(",
        "if key is found:\n            raise _RefusedError(",
        "hostile_json_is_refused",
    ),
    fault(
        "weights that are not finite are read",
        "if not all_finite(tensor):\n        raise IntegrityError(",
        "if tensor is None:\n        raise IntegrityError(",
        "a_hostile_container_is_refused",
        "weights_that_contradict_the_config_are_refused",
    ),
    fault(
        "a line of the decision log does not depend on the one before",
        'if found["previous"] != previous:',
        "if not previous:",
        "a_re_hashed_line_breaks_the_next_one",
    ),
    fault(
        "the decision log is written without its lock",
        "fcntl.flock(number, fcntl.LOCK_EX if write else fcntl.LOCK_SH)",
        "fcntl.flock(number, fcntl.LOCK_SH)",
        "writing_and_reading_hold_the_lock",
    ),
    # training
    fault(
        "the lock of a run is not held",
        "fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "a_second_run_in_a_folder_is_refused_and_the_process_named",
    ),
    fault(
        "a resumed run begins at step 0",
        'step=checkpoint.meta["step"],',
        "step=0,",
        "work_after_the_last_checkpoint_is_done_again",
    ),
    fault(
        "a resumed run has forgotten its moments",
        "slots.setdefault(int(number), {})[group.removeprefix(OPTIMIZER)] = value",
        "slots.setdefault(int(number), {})[group.removeprefix(OPTIMIZER)] = value * 0",
        "work_after_the_last_checkpoint_is_done_again",
    ),
    fault(
        "a resumed run has forgotten its losses",
        'history=list(progress["history"].numpy()) if "history" in progress else [],',
        "history=[],",
        "work_after_the_last_checkpoint_is_done_again",
    ),
    fault(
        "a run is resumed under other settings",
        "if not line.startswith(FREE)]",
        "if line.startswith(FREE)]",
        "another_order_of_the_same_samples_does_not_resume",
    ),
    fault(
        "training goes on with a loss that is not finite",
        "good = finite.all(1)\n",
        "good = finite.any(1) | True\n",
        "a_loss_or_gradient_that_is_no_number_names_its_step_and_samples",
    ),
    # the app and its pages
    fault(
        "any token opens the app",
        'return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())',
        "return bool(given)",
        "wrong_tokens_are_refused_and_slowed_down_and_the_right_one_works",
    ),
    fault(
        "routes of the app need no token",
        'if not scope["path"].startswith("/api/"):\n            return None',
        'if scope["path"].startswith("/"):\n            return None',
        "every_route_needs_the_token",
    ),
    fault(
        "the app answers to any host",
        "if len(hosts) != 1 or hosts[0].lower() not in self.keys.hosts:",
        "if len(hosts) != 1:",
        "other_spellings_of_the_host_are_refused",
    ),
    fault(
        "another site may use the app",
        "if any(origin.lower() not in {",
        "if not origins and any(origin.lower() not in {",
        "another_site_gets_nothing_even_with_the_token",
    ),
    fault(
        "a body of any size is read",
        "if size > self.limit:",
        "if size < 0:",
        "a_body_over_the_limit_is_refused_however_it_comes",
    ),
    fault(
        "names become markup in pages",
        "autoescape=True,",
        "autoescape=False,",
        "hostile_names_stay_text",
        "foreign_names_stay_text",
    ),
    # models of others, in loops that are not ours
    fault(
        "attach: a sample that was never in a batch gets a key all the same",
        "missing = np.flatnonzero(self.bank.count == 0)",
        "missing = np.flatnonzero(self.bank.count < 0)",
        "wrong_uses_are_refused_in_words",
    ),
    fault(
        "attach: samples are not hashed again when their keys are set",
        "            refuse_others(data, rows)\n            yield rows,",
        "            yield rows,",
        "wrong_uses_are_refused_in_words",
    ),
    fault(
        "attach: keys move before the backward pass of their step",
        "while self.waiting and (self.waiting[0].used or all_of_them or len(self.waiting) > MOST_WAITING):",
        "while self.waiting:",
        "keys_move_after_the_backward_pass_of_their_own_step",
    ),
    fault(
        "attach: the rows of keys are not those of their samples",
        "self.keys[rows] = torch.where(first, features, mixed)",
        "self.keys[rows.sort().values] = torch.where(first, features, mixed)",
        "the_first_features_are_taken_whole_and_later_ones_by_half",
    ),
    fault(
        "attach: a run takes a model with other weights",
        "if now != about.sha256:",
        "if not now:",
        "another_model_is_refused",
    ),
    fault(
        "attach: a model that is trained on after it was indexed is asked on",
        "        if weights_sha256(self.tap.model) != then:",
        "        if not then:",
        "a_run_notices_when_its_model_was_trained_on",
    ),
    fault(
        "attach: a state goes over to other data",
        "if then != self.data.samples.fingerprint:",
        "if not then:",
        "wrong_uses_are_refused_in_words",
    ),
    fault(
        "attach: two processes keep keys of their own",
        "        if self.processes > 1:\n            shares",
        "        if self.processes > 9:\n            shares",
        "two_processes_of_a_foreign_loop_do_what_one_does",
    ),
    # attacks with shadows, and photographs
    fault(
        "shadows that saw a sample are taken for those that did not",
        "outside = _normal(scores.shadows, ~scores.inside)",
        "outside = _normal(scores.shadows, scores.inside)",
        "lira_and_rmia_are_the_published_formulas",
    ),
    fault(
        "the share of candidates used forgets false alarms",
        "    value = ((n * seen + z2 / 2) / (n + z2) + true - 1) / told",
        "    value = (n * seen + z2 / 2) / (n + z2) / told",
        "intervals_of_simulated_audits_hold_the_truth",
    ),
    fault(
        "mirrored photographs are not looked for",
        "[one.flip(2) for one in seen]",
        "list(seen)",
        "copies_agree_in_more_places_than_others",
    ),
)


def files_with(text: str) -> list[str]:
    """Source files that hold a piece, once for each time."""
    found = {path: path.read_text("utf-8").count(text) for path in sorted((ROOT / "src").rglob("*.py"))}
    return [str(path.relative_to(ROOT)) for path, times in found.items() for _ in range(times)]


def files_of(test: str) -> list[str]:
    """Files of tests that hold a function."""
    line = re.compile(rf"^\s*(?:async )?def test_{test}\(", re.MULTILINE)
    return [
        str(p.relative_to(ROOT))
        for p in sorted((ROOT / "tests").rglob("test_*.py"))
        if line.search(p.read_text("utf-8"))
    ]


def run(tree: Path, tests: tuple[str, ...]) -> int:
    """The exit code of pytest; it stops at the first failure."""
    places = [f"{file}::test_{test}" for test in tests for file in files_of(test)]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", *places]
    threads = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "SCIPY_ARRAY_API": "1"}
    environment = {**os.environ, **threads, "PYTHONPATH": str(tree / "src")}
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return FAILED  # a fault may make a test wait for ever
    return done.returncode


def problems(faults: list[Fault]) -> list[str]:
    """Pieces and tests that are not there, or not once."""
    found = [
        f"{one.name}: its piece is found in {places or 'no file'}"
        for one in faults
        if len(places := files_with(one.piece)) != 1
    ]
    return found + [f"{one.name}: no test_{test}" for one in faults for test in one.tests if not files_of(test)]


def main(words: list[str]) -> int:
    """Plant what was asked for and say of each fault whether it was noticed."""
    faults = [one for one in FAULTS if not words or any(word in one.name for word in words)]
    missing = problems(faults)
    print("\n".join(missing), end="\n" if missing else "")
    faults = [one for one in faults if not any(line.startswith(f"{one.name}:") for line in missing)]
    unnoticed = []
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        tree = Path(place)
        for name in ("src", "tests", "docs", "benchmarks"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "results", "images"))
        shutil.copyfile(ROOT / "pyproject.toml", tree / "pyproject.toml")
        tests = tuple(dict.fromkeys(test for one in faults for test in one.tests))
        if run(tree, tests) != PASSED:
            print("some of the tests fail without any fault: " + ", ".join(tests))
            return 1
        for one in faults:
            path, began = tree / files_with(one.piece)[0], time.monotonic()
            whole = path.read_text("utf-8")
            path.write_text(whole.replace(one.piece, one.instead), "utf-8")
            code = run(tree, one.tests)
            path.write_text(whole, "utf-8")
            words_of = {FAILED: "noticed", PASSED: "NOT NOTICED"}.get(code, f"pytest ended with {code}")
            unnoticed += [] if code == FAILED else [one.name]
            print(f"{time.monotonic() - began:5.1f} s  {words_of}: {one.name}", flush=True)
    print(
        f"{len(faults) - len(unnoticed)} of {len(faults)} faults are noticed"
        + "".join(f"\n  not: {name}" for name in unnoticed)
    )
    return 1 if missing or unnoticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
