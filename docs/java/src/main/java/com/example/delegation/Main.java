package com.example.delegation;

import com.example.delegation.KeyedPurges.PurgeFailed;
import com.example.delegation.PurgeThenDrop.DropIntent;
import com.example.delegation.PurgeThenDrop.TableChanged;
import com.example.delegation.ServiceConnection.Tokens;
import com.example.delegation.TableCatalog.TableName;
import com.example.delegation.model.TaskSuccessResponse;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.net.http.HttpClient;
import java.nio.file.Path;
import java.util.List;
import javax.net.ssl.SSLContext;

/**
 * Drops a table of a running local stack with its files, in two steps as a catalog would:
 *
 * <p>`Main begin STACK_JSON KEY_STORE TRUST_STORE INTENT_FILE CATALOG.NAMESPACE.TABLE` stores what is to be dropped, and
 * `Main finish STACK_JSON KEY_STORE TRUST_STORE INTENT_FILE` purges and drops it, as often as it is run.
 */
public final class Main {
  private static final ObjectMapper JSON = new ObjectMapper();

  private Main() {}

  /** Prints the task, its status and the number of deleted files; exit status 1 with the reason on standard error. */
  public static void main(String[] words) throws Exception {
    PurgeThenDrop executor = executor(JSON.readTree(new File(words[1])), Path.of(words[2]), Path.of(words[3]));
    File stored = new File(words[4]);
    if (words[0].equals("begin")) {
      List<String> name = List.of(words[5].split("\\."));
      int last = name.size() - 1;
      JSON.writeValue(stored, executor.begin(new TableName(name.get(0), name.subList(1, last), name.get(last))));
      return;
    }
    try {
      TaskSuccessResponse done = executor.finish(JSON.readValue(stored, DropIntent.class));
      System.out.printf(
          "%s %s %d%n",
          done.getDelegationTaskId(), done.getStatus(), done.getExecutionResult().getFilesDeleted());
    } catch (PurgeFailed | TableChanged failed) {
      System.err.println(failed.getMessage());
      System.exit(1);
    }
  }

  private static PurgeThenDrop executor(JsonNode stack, Path keyStore, Path trustStore) throws Exception {
    // A keystore of your own has a password of your own, from where you keep secrets.
    char[] password = System.getenv().getOrDefault("STORE_PASSWORD", "changeit").toCharArray();
    SSLContext tls = ServiceConnection.mutualTls(keyStore, trustStore, password);
    HttpClient http = HttpClient.newBuilder().sslContext(tls).build();
    Tokens ofService =
        new Tokens(
            http,
            text(stack, "token_url"),
            text(stack, "client_id"),
            text(stack, "client_secret"),
            text(stack, "scope"));
    String[] principal = text(stack, "polaris_credential").split(":", 2);
    Tokens ofCatalog =
        new Tokens(
            http,
            text(stack, "polaris_url") + "/v1/oauth/tokens",
            principal[0],
            principal[1],
            text(stack, "polaris_scope"));
    KeyedPurges purges =
        new KeyedPurges(ServiceConnection.open(text(stack, "edge_url"), tls, ofService), ofService);
    RestCatalog catalog = new RestCatalog(http, text(stack, "polaris_url"), ofCatalog);
    return new PurgeThenDrop(purges, catalog, text(stack, "realm"));
  }

  private static String text(JsonNode stack, String name) {
    return stack.get(name).asText();
  }
}
