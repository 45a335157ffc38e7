// What the buttons of a card do, the same in the page and in the element: cancel, download, remove, ask again.

import { newKey } from "./api.js";

/** @import {Api} from "./api.js" */
/** @import {ExportRequest, Run} from "./contract.js" */

/**
 * @param {Api} api
 * @param {(run: Run) => void} changed
 * @param {(run: Run) => void} refill Let the reader fill in the form, where the server does not say what was asked.
 * @returns {import("./card.js").Deeds}
 */
export function makeDeeds(api, changed, refill) {
  /** After a refusal the card must show what the run has become meanwhile. @param {Run} run @param {() => Promise<Run | void>} deed */
  const doing = async (run, deed) => {
    try {
      changed((await deed()) ?? run);
    } catch (error) {
      changed(run);
      throw error;
    }
  };
  return {
    cancel: (run) => doing(run, () => api.cancel(run)),
    remove: (run) => doing(run, () => api.expire(run)),
    download: (run) => doing(run, () => download(api, run)),
    again: async (run) => {
      const request = requestOf(run);
      if (!request) return refill(run);
      const { run: next } = await api.request(/** @type {ExportRequest} */ (request), newKey());
      changed(next);
    },
  };
}

/** Get one file: a fresh link for each click, because a link lives for minutes only. @param {Api} api @param {Run} run */
async function download(api, run) {
  const link = document.createElement("a");
  link.href = await api.mintFile(run);
  link.download = run.file?.name ?? "";
  link.hidden = true;
  document.body.append(link);
  link.click();
  link.remove();
}

/** The request that a run was made from, for "export again"; null where the server does not say. @param {Run} run */
function requestOf(run) {
  const { dataset, parent, format, parameters, columns, group_by, subtotals, pivot, options, compression } = run;
  if (!parameters || columns === undefined) return null; // Guessing would make another export than the one asked for again.
  return {
    dataset,
    format,
    parameters,
    ...(parent === null || parent === undefined ? {} : { parent }),
    ...(columns?.length ? { columns } : {}),
    ...(group_by?.length ? { group_by } : {}),
    ...(subtotals?.length ? { subtotals } : {}),
    ...(pivot?.length ? { pivot } : {}),
    ...(options && Object.keys(options).length ? { options } : {}),
    ...(compression ? { compression } : {}),
  };
}
