import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.iceberg.MetadataUpdate;
import org.apache.iceberg.MetadataUpdateParser;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.UpdateRequirement;
import org.apache.iceberg.UpdateRequirementParser;
import org.apache.iceberg.view.ViewMetadata;
import org.apache.iceberg.view.ViewMetadataParser;

/**
 * Answers, line by line, what Iceberg does with sequences of commits.
 *
 * <p>A line in: {"kind": "table" or "view", "base": document or null, "commits": [{"requirements", "updates", "file"}]}.
 * A line out: {"base": document as Iceberg writes it, or null, "commits": [{"ok", "now", "changed", "document"} or
 * {"ok": false, "now", "stage", "type", "message"}]}. A commit counts as accepted if Iceberg reads what it wrote.
 */
public class Oracle {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    String line;
    while ((line = in.readLine()) != null) {
      JsonNode sequence = MAPPER.readTree(line);
      out.println(MAPPER.writeValueAsString(answer(sequence)));
      out.flush();
    }
  }

  private static ObjectNode answer(JsonNode sequence) throws Exception {
    ObjectNode answer = MAPPER.createObjectNode();
    Kind kind = "view".equals(sequence.get("kind").asText()) ? new Views() : new Tables();
    String document = null;
    if (!sequence.get("base").isNull()) {
      try {
        document = kind.rewritten(MAPPER.writeValueAsString(sequence.get("base")));
      } catch (RuntimeException e) {
        answer.set("base-error", refusal("base", e));
        return answer;
      }
    }
    answer.set("base", document == null ? MAPPER.nullNode() : MAPPER.readTree(document));
    ArrayNode commits = answer.putArray("commits");
    for (JsonNode commit : sequence.get("commits")) {
      Step step = new Step();
      long now = System.currentTimeMillis();
      ObjectNode outcome;
      try {
        String after = kind.commit(step, document, commit);
        outcome = MAPPER.createObjectNode();
        outcome.put("ok", true);
        outcome.put("changed", after != null);
        if (after != null) {
          document = after;
          outcome.set("document", MAPPER.readTree(after));
        }
      } catch (RuntimeException | OutOfMemoryError e) {
        // Iceberg's check of identifier fields does not end where a field has its own parent's id.
        outcome = refusal(step.stage, e);
      }
      outcome.put("now", now);
      commits.add(outcome);
    }
    return answer;
  }

  private static ObjectNode refusal(String stage, Throwable e) {
    ObjectNode outcome = MAPPER.createObjectNode();
    outcome.put("ok", false);
    outcome.put("stage", stage);
    outcome.put("type", e.getClass().getSimpleName());
    outcome.put("message", e.getMessage());
    return outcome;
  }

  private static class Step {
    private String stage = "parse";
  }

  private abstract static class Kind {
    abstract String rewritten(String document);

    abstract String applied(
        Step step, String base, String file, List<UpdateRequirement> requirements, List<MetadataUpdate> updates);

    String commit(Step step, String base, JsonNode commit) {
      List<UpdateRequirement> requirements = new ArrayList<>();
      for (JsonNode requirement : commit.get("requirements")) {
        requirements.add(UpdateRequirementParser.fromJson(requirement));
      }
      List<MetadataUpdate> updates = new ArrayList<>();
      for (JsonNode update : commit.get("updates")) {
        updates.add(MetadataUpdateParser.fromJson(update));
      }
      String file = commit.get("file").isNull() ? null : commit.get("file").asText();
      String after = applied(step, base, file, requirements, updates);
      if (after == null) {
        return null;
      }
      step.stage = "read";
      return rewritten(after);
    }
  }

  private static class Tables extends Kind {
    @Override
    String rewritten(String document) {
      return TableMetadataParser.toJson(TableMetadataParser.fromJson(document));
    }

    @Override
    String applied(
        Step step, String base, String file, List<UpdateRequirement> requirements, List<MetadataUpdate> updates) {
      TableMetadata current = base == null ? null : TableMetadataParser.fromJson(file, base);
      step.stage = "requirement";
      requirements.forEach(requirement -> requirement.validate(current));
      step.stage = "apply";
      TableMetadata.Builder builder =
          current == null ? TableMetadata.buildFromEmpty(firstVersion(updates)) : TableMetadata.buildFrom(current);
      updates.forEach(update -> update.applyTo(builder));
      step.stage = "build";
      TableMetadata after = builder.build();
      if (after.changes().isEmpty()) {
        return null;
      }
      step.stage = "write";
      return TableMetadataParser.toJson(after);
    }

    private static int firstVersion(List<MetadataUpdate> updates) {
      return updates.stream()
          .filter(MetadataUpdate.UpgradeFormatVersion.class::isInstance)
          .map(update -> ((MetadataUpdate.UpgradeFormatVersion) update).formatVersion())
          .findFirst()
          .orElse(2);
    }
  }

  private static class Views extends Kind {
    @Override
    String rewritten(String document) {
      ViewMetadata view = ViewMetadataParser.fromJson(document);
      view.schema();
      return ViewMetadataParser.toJson(view);
    }

    @Override
    String applied(
        Step step, String base, String file, List<UpdateRequirement> requirements, List<MetadataUpdate> updates) {
      ViewMetadata current = base == null ? null : ViewMetadataParser.fromJson(base);
      step.stage = "requirement";
      requirements.forEach(requirement -> requirement.validate(current));
      step.stage = "apply";
      ViewMetadata.Builder builder = current == null ? ViewMetadata.builder() : ViewMetadata.buildFrom(current);
      updates.forEach(update -> update.applyTo(builder));
      step.stage = "build";
      ViewMetadata after = builder.build();
      if (after.changes().isEmpty()) {
        return null;
      }
      step.stage = "write";
      return ViewMetadataParser.toJson(after);
    }
  }
}
